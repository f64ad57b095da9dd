"""The files of the target bazel; an integration test builds with Bazel."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from embed_models import HOSTILE, float_tiny, int8_tiny, large_tiny, named_tiny, published, tree
from embed_web_models import variable_model
from tiny_tflite import Graph, packed
from wording import fails

from edgeconv import embed
from edgeconv.types.errors import InputRefused, UnsupportedOperators


def bazel(tmp_path: Path, make: Any = int8_tiny, **options: Any) -> Path:
    embed(make(tmp_path / "published"), "bazel", tmp_path / "out", symbol="gesture", **options)
    return tmp_path / "out"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A directory that no test changes."""
    return bazel(tmp_path_factory.mktemp("plain"))


def code(file: Path) -> str:
    """A file without the comment at its top, and without hashes."""
    return re.sub("[0-9a-f]{64}", "", file.read_text("ascii").partition("\n")[2])


def test_the_files_are_those_of_c_with_a_module_around_them(plain):
    written = tree(plain)
    assert {*written} == {
        *("MODULE.bazel", "BUILD.bazel", "edgeconv.bzl", "edgeconv-embedded.json"),
        *("gesture.c", "gesture.h", "gesture.tflite", "gesture_model.c", "gesture_golden.c"),
        *("gesture_interface.c", "gesture_interface.h"),
        *("gesture_self_test.c", "gesture_self_test.h", "gesture_self_test_main.cpp"),
        *("gesture_litert.cpp", "gesture_litert.hpp"),
    }


def test_every_file_stands_in_the_build_with_the_hash_that_it_has(plain):
    written = tree(plain)
    hashes = dict(re.findall(rb'"([^"]+)": "([0-9a-f]{64})"', written["BUILD.bazel"]))
    assert {name.decode() for name in hashes} == {one for one in written if "gesture" in one}
    for name, sha256 in hashes.items():
        assert hashlib.sha256(written[name.decode()]).hexdigest() == sha256.decode()


def test_the_module_has_a_name_that_bazel_takes_and_needs_rules_cc(tmp_path):
    model = int8_tiny(tmp_path / "published")
    embed(model, "bazel", tmp_path / "out", symbol="Gesture_2_")
    module = (tmp_path / "out" / "MODULE.bazel").read_text("ascii")
    assert re.findall(r'name = "([^"]*)"', module) == ["gesture_2", "rules_cc"]


def test_a_large_model_is_a_file_that_the_build_checks(tmp_path):
    directory = bazel(tmp_path, lambda place: large_tiny(place, 2_000_000))
    sha256 = hashlib.sha256((directory / "gesture.tflite").read_bytes()).hexdigest()
    assert f'"gesture.tflite": "{sha256}"' in (directory / "BUILD.bazel").read_text("ascii")
    assert len((directory / "gesture_model.c").read_bytes()) < 10_000


def test_a_package_of_the_projects_own_tree_has_no_module(tmp_path):
    directory = bazel(tmp_path, option={"module": "no"})
    assert not (directory / "MODULE.bazel").exists()
    assert "--//PACKAGE:litert=LABEL" in (directory / "BUILD.bazel").read_text("ascii")


def test_the_resolver_for_microcontrollers_is_a_header_of_the_library(tmp_path):
    directory = bazel(tmp_path, option={"micro": "yes", "golden": "litert"})
    assert b"AddFullyConnected" in (directory / "gesture_micro.h").read_bytes()
    build = (directory / "BUILD.bazel").read_text("ascii")
    assert build.count('"gesture_micro.h"') == build.count('"gesture.h"')


def test_an_operator_that_no_microcontroller_has_matters_only_where_one_is_meant(tmp_path):
    def gelu(place: Path) -> Path:
        graph = Graph()
        x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
        graph.operator("GELU", [x], [y])
        return published(place, packed(graph.model([x], [y])), recipe="float32")

    assert (bazel(tmp_path, gelu) / "gesture.c").exists()
    with fails(UnsupportedOperators):
        bazel(tmp_path, gelu, option={"micro": "yes"})


def test_hostile_names_stay_out_of_starlark(tmp_path, plain):
    def hostile(place: Path) -> Path:
        return int8_tiny(place, name=HOSTILE)

    directory = bazel(tmp_path, hostile)
    for name in ("BUILD.bazel", "MODULE.bazel", "edgeconv.bzl"):
        assert code(directory / name) == code(plain / name)


def test_variable_tensors_are_refused(tmp_path):
    with fails(InputRefused):
        bazel(tmp_path, lambda place: published(place, variable_model()))


def test_an_open_batch_is_one(tmp_path):
    assert b"_DIM_0 1" in tree(bazel(tmp_path, float_tiny))["gesture.h"]


def test_another_open_dimension_is_refused(tmp_path):
    def ragged(place: Path) -> Path:
        graph = Graph()
        x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
        for index in (x, y):
            graph.tensors[index].shapeSignature = [1, -1]
        graph.operator("ABS", [x], [y])
        return published(place, packed(graph.model([x], [y])), recipe="float32")

    with fails(InputRefused):
        bazel(tmp_path, ragged)


@pytest.mark.parametrize("target", ["bazel", "cmake"])
def test_an_input_without_a_name_is_refused(tmp_path, target):
    file = named_tiny(tmp_path / "m", ["x", ""])
    with fails(InputRefused):
        embed(file, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
