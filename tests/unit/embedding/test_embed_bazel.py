"""The target bazel, its files evaluated by a Starlark; an integration test builds with Bazel."""

from __future__ import annotations

import hashlib
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from embed_models import HOSTILE, float_tiny, int8_tiny, large_tiny, named_tiny, published, tree
from embed_web_models import variable_model
from tiny_tflite import Graph, packed

from edgeconv import embed
from edgeconv.types.errors import InputRefused, UnsupportedOperators

if TYPE_CHECKING:
    from pathlib import Path

# What Bazel has in a .bzl and BUILD file, as far as it is used: each target is recorded.
BUILTINS = """
def rule(implementation, attrs, doc):
    def instantiate(**kwargs):
        for name in kwargs:
            if name not in list(attrs.keys()) + ["name", "visibility", "testonly"]:
                fail("no such attribute: " + name)
        record("rule", kwargs)
    return instantiate

def target(kind):
    def instantiate(**kwargs):
        record(kind, kwargs)
    return instantiate

def provider(doc, fields):
    return struct(doc = doc, fields = fields)

def DefaultInfo(files, runfiles = None):
    return struct(files = files, runfiles = runfiles)

def OutputGroupInfo(_validation):
    return struct(validation = _validation)

def depset(files):
    return files

def Label(text):
    return struct(workspace_root = "external/gesture")

def attribute(**kwargs):
    return kwargs

attr = struct(
    label = attribute,
    label_list = attribute,
    string = attribute,
    string_dict = attribute,
)
native = struct(package_name = lambda: "")
cc_library = target("cc_library")
cc_test = target("cc_test")
label_flag = target("label_flag")
module = target("module")
bazel_dep = target("bazel_dep")
package = target("package")
"""
NAMES = {
    "bzl": (
        *("rule", "provider", "Label", "attr", "native"),
        *("DefaultInfo", "OutputGroupInfo", "depset"),
    ),
    "build": ("label_flag", "package"),
    "module": ("module", "bazel_dep"),
}


class Bazel:
    """Evaluates the files of a directory; `targets` are what they declare, by name."""

    def __init__(self, directory: Path) -> None:
        self.starlark = pytest.importorskip(
            "starlark", reason="starlark-pyo3, which evaluates Starlark, is not installed"
        )
        self.directory = directory
        self.said: list[tuple[str, dict[str, Any]]] = []
        dialect = self.starlark.Dialect.extended()
        dialect.enable_f_strings = False
        self.dialect = dialect
        extensions = self.starlark.LibraryExtension.StructType
        self.globals = self.starlark.Globals.extended_by([extensions])
        self.builtins = self._evaluate("builtins.bzl", BUILTINS, {}).freeze()

    def run(self, name: str, kind: str) -> Any:
        """The module that a file is, frozen."""
        names = ", ".join(f'"{one}"' for one in NAMES[kind])
        text = (self.directory / name).read_text("ascii")
        known = {"builtins": self.builtins, "@rules_cc//cc:defs.bzl": self.builtins}
        if kind == "build":
            known[":edgeconv.bzl"] = self.run("edgeconv.bzl", "bzl")
        return self._evaluate(name, f'load("builtins", {names})\n{text}', known).freeze()

    def _evaluate(self, name: str, text: str, known: dict[str, Any]) -> Any:
        module = self.starlark.Module()
        module.add_callable("record", lambda kind, kwargs: self.said.append((kind, kwargs)))
        tree = self.starlark.parse(name, text, self.dialect)
        loader = self.starlark.FileLoader(known.__getitem__)
        self.starlark.eval(module, tree, self.globals, loader)
        return module

    def targets(self) -> dict[str, dict[str, Any]]:
        """What BUILD.bazel declares, by name; `kind` is which rule."""
        self.said.clear()
        self.run("BUILD.bazel", "build")
        named = [(kind, kwargs) for kind, kwargs in self.said if "name" in kwargs]
        found = {kwargs["name"]: {**kwargs, "kind": kind} for kind, kwargs in named}
        assert len(found) == len(named)
        return found


def bazel(tmp_path: Path, make: Any = int8_tiny, **options: Any) -> Path:
    embed(make(tmp_path / "published"), "bazel", tmp_path / "out", symbol="gesture", **options)
    return tmp_path / "out"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    evaluated = Bazel(tmp_path / "out")
    evaluated.run("MODULE.bazel", "module")
    (_, module), (_, needed) = evaluated.said
    assert module["name"] == "gesture_2"
    assert re.fullmatch("[a-z]([a-z0-9._-]*[a-z0-9])?", module["name"])
    assert needed["name"] == "rules_cc"
    assert [*evaluated.targets()][-1] == "Gesture_2__self_test"


def test_the_targets_are_libraries_of_files_that_are_checked(plain):
    targets = Bazel(plain).targets()
    assert {name: one["kind"] for name, one in targets.items() if one["kind"] != "rule"} == {
        "litert": "label_flag",
        "no_litert": "cc_library",
        "gesture": "cc_library",
        "gesture_self_test_lib": "cc_library",
        "gesture_litert": "cc_library",
        "gesture_self_test": "cc_test",
    }
    library = targets["gesture"]
    assert (library["srcs"], library["hdrs"]) == ([":gesture_sources"], [":gesture_headers"])
    assert targets["gesture_sources"]["srcs"] == [
        "gesture.c",
        "gesture_interface.c",
        "gesture_model.c",
    ]
    assert library["copts"] == ["-Iexternal/gesture"]
    assert targets["gesture_tflite"]["src"] == "gesture.tflite"
    assert targets["gesture_self_test"]["tags"] == ["manual"]
    assert ":litert" in targets["gesture_litert"]["deps"]
    labels = {
        label
        for one in targets.values()
        for key in ("srcs", "hdrs", "deps", "textual_hdrs")
        for label in one.get(key, [])
    }
    assert {label for label in labels if label.startswith(":")} <= {f":{one}" for one in targets}
    files = {label for label in labels if not label.startswith(":")}
    assert files <= {*tree(plain)}


def test_a_large_model_is_a_file_whose_hash_is_in_the_command(tmp_path):
    directory = bazel(tmp_path, lambda place: large_tiny(place, 2_000_000))
    targets = Bazel(directory).targets()
    sha256 = hashlib.sha256((directory / "gesture.tflite").read_bytes()).hexdigest()
    assert targets["gesture"]["local_defines"] == [f"EDGECONV_DATA_SHA256={sha256}"]
    assert targets["gesture_data"]["srcs"] == ["gesture.tflite"]
    assert len((directory / "gesture_model.c").read_bytes()) < 10_000


def test_a_package_of_the_projects_own_tree_has_no_module(tmp_path):
    directory = bazel(tmp_path, option={"module": "no"})
    assert not (directory / "MODULE.bazel").exists()
    assert "--//PACKAGE:litert=LABEL" in (directory / "BUILD.bazel").read_text("ascii")


def test_the_resolver_for_microcontrollers_is_a_header_of_the_library(tmp_path):
    directory = bazel(tmp_path, option={"micro": "yes", "golden": "litert"})
    assert b"AddFullyConnected" in (directory / "gesture_micro.h").read_bytes()
    headers = Bazel(directory).targets()["gesture_headers"]
    assert headers["srcs"] == ["gesture.h", "gesture_interface.h", "gesture_micro.h"]
    assert {*headers["sha256"]} == {*headers["srcs"]}


def test_an_operator_that_no_microcontroller_has_matters_only_where_one_is_meant(tmp_path):
    def gelu(place: Path) -> Path:
        graph = Graph()
        x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
        graph.operator("GELU", [x], [y])
        return published(place, packed(graph.model([x], [y])), recipe="float32")

    assert (bazel(tmp_path, gelu) / "gesture.c").exists()
    with pytest.raises(UnsupportedOperators, match="GELU"):
        bazel(tmp_path, gelu, option={"micro": "yes"})


def test_hostile_names_stay_out_of_starlark(tmp_path, plain):
    def hostile(place: Path) -> Path:
        return int8_tiny(place, name=HOSTILE)

    directory = bazel(tmp_path, hostile)
    for name in ("BUILD.bazel", "MODULE.bazel", "edgeconv.bzl"):
        assert code(directory / name) == code(plain / name)
    evaluated = Bazel(directory)
    evaluated.run("MODULE.bazel", "module")
    assert {*evaluated.targets()} >= {"gesture", "gesture_self_test"}


def test_the_check_tells_a_file_that_changed(tmp_path, plain):
    rules = (plain / "edgeconv.bzl").read_text("ascii")
    (script,) = re.findall(r'^_CHECK = """(.*?)"""', rules, re.DOTALL | re.MULTILINE)
    file, listed, done = (tmp_path / name for name in ("a model.c", "listed", "done"))
    file.write_bytes(b"abc")
    listed.write_text(f"{hashlib.sha256(b'abc').hexdigest()} {file}\n")
    command = ["sh", "-c", script, "", listed, done]
    right = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (right.returncode, right.stderr, done.read_bytes()) == (0, "", b"")
    done.unlink()
    file.write_bytes(b"abd")
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"{file}:1: error: it changed since edgeconv made it")
    assert not done.exists()


def test_variable_tensors_are_refused(tmp_path):
    with pytest.raises(InputRefused, match=r"tiny has variable tensors, .* LiteRT's C interface"):
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

    with pytest.raises(InputRefused, match=r"the shape \[1, -1\]"):
        bazel(tmp_path, ragged)


@pytest.mark.parametrize("target", ["bazel", "cmake"])
def test_an_input_without_a_name_is_refused(tmp_path, target):
    file = named_tiny(tmp_path / "m", ["x", ""])
    with pytest.raises(InputRefused, match="tiny has an input or output without a name"):
        embed(file, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
