from __future__ import annotations

import random
from pathlib import Path

import pytest
from foreign_files import (
    CORE_ML,
    FOREIGN,
    FROZEN,
    ONNX,
    TABLE,
    TFJS_GRAPH,
    TFJS_LAYERS,
    archive,
    write,
)
from tiny_saved_model import PLAIN, meta_graph, write_plain, write_saved_model

from edgeconv.errors import InputRefused
from edgeconv.source import inspect_model, load
from edgeconv.source.foreign import foreign_file

VARIABLES = ("VarHandleOp", "LSTM", "RestoreV2")
INDEX, DATA = "variables/variables.index", "variables/variables.data-00000-of-00001"


def refusal(path: Path) -> InputRefused:
    with pytest.raises(InputRefused) as caught:
        load(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(("name", "content", "what", "way"), FOREIGN)
def test_a_model_of_another_kind_is_named_by_its_content_with_the_way_out(
    tmp_path, name, content, what, way
):
    (tmp_path / name).write_bytes(content)
    refused = refusal(tmp_path / name)
    assert f"{name} is " in refused.message
    assert what in refused.message
    assert way in refused.hint


@pytest.mark.parametrize(
    ("contents", "what", "way"),
    [
        ({"model.json": TFJS_LAYERS, "group1-shard1of1.bin": b"w"}, "layers model", "tfjs_layers"),
        ({"model.json": TFJS_GRAPH, "group1-shard1of1.bin": b"w"}, "graph model", "tfjs_graph"),
        ({"frozen_inference_graph.pb": FROZEN, "labels.txt": b"a"}, "frozen", "docs/models.md"),
        ({"model.ckpt.index": TABLE, "model.ckpt.data-00000-of-00001": b"w"}, "checkpoint", "load"),
        ({"model.onnx": ONNX, "config.json": b"{}"}, "an ONNX model", "onnx2tf"),
        ({"tfhub_module.pb": b"\x08\x03", "saved_model.pb": b"x"}, "Hub module", "docs/models.md"),
        ({"header.pb": b"h", "data_spec.pb": b"d", "done": b""}, "a decision forest", "ydf"),
        (
            {"Manifest.json": b"{}", "Data/com.apple.CoreML/model.mlmodel": CORE_ML},
            "a Core ML model",
            "made from",
        ),
        (
            {"config.json": b"{}", "metadata.json": b"{}", "model.weights.h5": b"w"},
            "an unzipped .keras file",
            "zip -r",
        ),
    ],
)
def test_a_directory_of_another_kind_is_named_with_the_way_out(tmp_path, contents, what, way):
    refused = refusal(write(tmp_path / "net", contents))
    assert what in refused.message
    assert way in refused.hint


def test_a_weights_shard_of_tensorflow_js_is_told_by_the_model_beside_it(tmp_path):
    write(tmp_path, {"model.json": TFJS_LAYERS, "group1-shard1of1.bin": b"w"})
    assert "TensorFlow.js" in refusal(tmp_path / "group1-shard1of1.bin").message


def test_a_saved_model_in_a_directory_of_other_files_is_pointed_at(tmp_path):
    write(tmp_path, {"frozen_inference_graph.pb": FROZEN})
    inner = write_plain(tmp_path / "saved_model")
    assert f"give the model in it: {inner}" in refusal(tmp_path).hint


def test_a_part_of_a_saved_model_is_told_from_a_checkpoint(tmp_path):
    write(write_plain(tmp_path / "net"), {INDEX: TABLE})
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


def test_no_damaged_or_random_file_is_anything_but_refused_or_unknown(tmp_path):
    file = tmp_path / "a.bin"
    chance = random.Random(5)
    for _, content, _, _ in FOREIGN:
        for _ in range(40):
            damaged = bytearray(content[: chance.randint(1, len(content))])
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            file.write_bytes(bytes(damaged))
            found = foreign_file(file)
            assert found is None or (found.what and found.hint)


def test_a_large_file_is_told_without_reading_it(tmp_path):
    file = tmp_path / "a.onnx"
    size_bytes = 1 << 36
    with file.open("wb") as sparse:
        sparse.truncate(size_bytes)
    assert "an ONNX model" in refusal(file).message
    file.write_bytes(archive("a/data.pkl"))
    assert "PyTorch" in refusal(file).message
