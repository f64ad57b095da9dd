"""Models of other kinds are named with the way out; parts of a SavedModel are told."""

from pathlib import Path

import pytest
from foreign_files import write
from tiny_saved_model import PLAIN, meta_graph, write_plain, write_saved_model
from wording import fails

from edgeconv.model.source import inspect_model, load
from edgeconv.types.errors import InputRefused

VARIABLES = ("VarHandleOp", "LSTM", "RestoreV2")
INDEX, DATA = "variables/variables.index", "variables/variables.data-00000-of-00001"
ZIP = b"PK\x03\x04" + bytes(20)


def is_refused(path: Path) -> None:
    with fails(InputRefused):
        load(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ONNX", b""),
        ("frozen.pb", b""),
        ("m.pt", ZIP),
        ("x.data-00000-of-00001", b""),
        ("model.json", b"{}"),
        ("m.tar.gz", b""),
        ("unnamed", ZIP),
        ("pytorch_model.bin", b"\x80\x02"),
    ],
)
def test_a_model_of_another_kind_is_named_with_the_way_out(tmp_path, name, content):
    (tmp_path / name).write_bytes(content or b"anything")
    is_refused(tmp_path / name)


@pytest.mark.parametrize("name", ["a.keras", "a.h5", "a.tflite"])
def test_a_file_that_is_named_as_a_model_is_not_taken_for_another(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02 and more")
    is_refused(tmp_path / name)


@pytest.mark.parametrize(
    "names",
    [
        ("model.onnx", "config.json"),
        ("m.ckpt.index", "m.ckpt.data-00000-of-00001"),
        ("tfhub_module.pb", "saved_model.pb"),
        ("header.pb", "data_spec.pb", "done"),
        ("config.json", "metadata.json", "model.weights.h5"),
    ],
)
def test_a_directory_of_another_kind_is_named_with_the_way_out(tmp_path, names):
    is_refused(write(tmp_path / "net", dict.fromkeys(names, b"x")))


def test_data_in_a_directory_does_not_make_it_a_model(tmp_path):
    names = ("samples.npz", "settings.json", "images.zip")
    is_refused(write(tmp_path / "net", dict.fromkeys(names, b"x")))


def test_a_saved_model_in_a_directory_of_other_files_is_pointed_at(tmp_path):
    write(tmp_path, {"frozen_inference_graph.pb": b"x"})
    write_plain(tmp_path / "saved_model")
    is_refused(tmp_path)


def test_a_part_of_a_saved_model_is_told_from_a_checkpoint(tmp_path):
    write(write_plain(tmp_path / "net"), {INDEX: b"x"})
    is_refused(tmp_path / "net" / INDEX)


def test_a_decision_forest_is_told_by_its_operators(tmp_path):
    graph = meta_graph({"serving_default": PLAIN}, function_operators=("SimpleMLInferenceOp",))
    is_refused(write_saved_model(tmp_path / "forest", graph))


@pytest.mark.parametrize(
    ("operators", "present"),
    [
        (VARIABLES, ()),
        (("VariableV2", "RestoreV2"), ()),
        (VARIABLES, (DATA,)),
        (VARIABLES, (INDEX,)),
        (VARIABLES, (INDEX, "variables/variables.data-00001-of-00002")),
    ],
)
def test_a_saved_model_without_its_variables_says_so(tmp_path, operators, present):
    graph = meta_graph(
        {"serving_default": PLAIN}, operators=operators[:1], function_operators=operators[1:]
    )
    net = write(write_saved_model(tmp_path / "net", graph), dict.fromkeys(present, b"w"))
    is_refused(net)


@pytest.mark.parametrize(
    ("operators", "present"),
    [
        (("Const", "RestoreV2"), ()),
        (("VarHandleOp",), ()),
        (VARIABLES, (INDEX, DATA)),
        (VARIABLES, ("variables/variables",)),
    ],
)
def test_a_saved_model_with_its_variables_or_without_any_is_taken(tmp_path, operators, present):
    graph = meta_graph({"serving_default": PLAIN}, operators=operators)
    net = write(write_saved_model(tmp_path / "net", graph), dict.fromkeys(present, b"w"))
    assert inspect_model(net).model.signatures
