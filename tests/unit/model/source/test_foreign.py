"""Models of other kinds are named with the way out; parts of a SavedModel are told."""

from pathlib import Path

import pytest
from foreign_files import write
from tiny_saved_model import PLAIN, meta_graph, write_plain, write_saved_model

from edgeconv.model.source import inspect_model, load
from edgeconv.types.errors import InputRefused

VARIABLES = ("VarHandleOp", "LSTM", "RestoreV2")
INDEX, DATA = "variables/variables.index", "variables/variables.data-00000-of-00001"
ZIP = b"PK\x03\x04" + bytes(20)


def refusal(path: Path) -> InputRefused:
    with pytest.raises(InputRefused) as caught:
        load(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("name", "content", "what", "way"),
    [
        ("a.ONNX", b"", "an ONNX model", "onnx2tf -i"),
        ("frozen.pb", b"", "a TensorFlow graph", "docs/models.md"),
        ("m.pt", ZIP, "a model of PyTorch", "litert_torch"),
        ("x.data-00000-of-00001", b"", "a TensorFlow checkpoint", "load_weights"),
        ("model.json", b"{}", "text, which has no weights", "model_from_json"),
        ("m.tar.gz", b"", "an archive", "unpack it"),
        ("unnamed", ZIP, "an archive", "unpack it"),
        ("pytorch_model.bin", b"\x80\x02", "a pickled Python object", "never loaded"),
    ],
)
def test_a_model_of_another_kind_is_named_with_the_way_out(tmp_path, name, content, what, way):
    (tmp_path / name).write_bytes(content or b"anything")
    refused = refusal(tmp_path / name)
    assert f"{name} is {what}" in refused.message
    assert way in refused.hint


@pytest.mark.parametrize("name", ["a.keras", "a.h5", "a.tflite"])
def test_a_file_that_is_named_as_a_model_is_not_taken_for_another(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x02 and more")
    assert f"is named {name[1:]}, but its content is nothing" in refusal(tmp_path / name).message


@pytest.mark.parametrize(
    ("names", "what", "way"),
    [
        (("model.onnx", "config.json"), "an ONNX model", "onnx2tf"),
        (("m.ckpt.index", "m.ckpt.data-00000-of-00001"), "a TensorFlow checkpoint", "load"),
        (("tfhub_module.pb", "saved_model.pb"), "a TensorFlow 1 Hub module", "docs/models.md"),
        (("header.pb", "data_spec.pb", "done"), "a decision forest", "ydf.load_model"),
        (("config.json", "metadata.json", "model.weights.h5"), "an unzipped .keras", "zip -r"),
    ],
)
def test_a_directory_of_another_kind_is_named_with_the_way_out(tmp_path, names, what, way):
    refused = refusal(write(tmp_path / "net", dict.fromkeys(names, b"x")))
    assert what in refused.message
    assert way in refused.hint


def test_data_in_a_directory_does_not_make_it_a_model(tmp_path):
    names = ("samples.npz", "settings.json", "images.zip")
    refused = refusal(write(tmp_path / "net", dict.fromkeys(names, b"x")))
    assert "holds no model: it has no saved_model.pb" in refused.message


def test_a_saved_model_in_a_directory_of_other_files_is_pointed_at(tmp_path):
    write(tmp_path, {"frozen_inference_graph.pb": b"x"})
    inner = write_plain(tmp_path / "saved_model")
    assert f"give the model in it: {inner}" in refusal(tmp_path).hint


def test_a_part_of_a_saved_model_is_told_from_a_checkpoint(tmp_path):
    write(write_plain(tmp_path / "net"), {INDEX: b"x"})
    assert f"give its directory: {tmp_path / 'net'}" in refusal(tmp_path / "net" / INDEX).hint


def test_a_decision_forest_is_told_by_its_operators(tmp_path):
    graph = meta_graph({"serving_default": PLAIN}, function_operators=("SimpleMLInferenceOp",))
    refused = refusal(write_saved_model(tmp_path / "forest", graph))
    assert "is a TensorFlow Decision Forests model" in refused.message
    assert "to_standalone_cc" in refused.hint


@pytest.mark.parametrize(
    ("operators", "present", "missing"),
    [
        (VARIABLES, (), "variables/ is missing or empty"),
        (("VariableV2", "RestoreV2"), (), "variables/ is missing or empty"),
        (VARIABLES, (DATA,), f"{INDEX} is missing"),
        (VARIABLES, (INDEX,), f"{DATA} is missing"),
        (
            VARIABLES,
            (INDEX, "variables/variables.data-00001-of-00002"),
            "variables/variables.data-00000-of-00002 is missing",
        ),
    ],
)
def test_a_saved_model_without_its_variables_says_so(tmp_path, operators, present, missing):
    graph = meta_graph(
        {"serving_default": PLAIN}, operators=operators[:1], function_operators=operators[1:]
    )
    net = write(write_saved_model(tmp_path / "net", graph), dict.fromkeys(present, b"w"))
    refused = refusal(net)
    assert missing in refused.message
    assert "git check-ignore -v" in refused.hint


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
