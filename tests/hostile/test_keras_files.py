"""Keras files that call what they name, or read other files; none of them gets past the scan."""

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from graph_files import block, graph, meta_graph, write

from edgeconv import scan
from edgeconv.model.source.scanning.keras_files import QUANTIZED_BY_KERAS, scan_config
from edgeconv.model.source.scanning.nodes import Findings
from edgeconv.model.source.scanning.refusing import admit_model
from edgeconv.types import Scan
from edgeconv.types.errors import InputRefused

DENSE = {"class_name": "Dense", "config": {"name": "d", "units": 3, "activation": "relu"}}


def model_of(*layers: Any) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "s", "layers": [DENSE, *layers]}}


def function(name: str, module: str | None) -> dict[str, Any]:
    return {
        "class_name": "function",
        "module": module,
        "config": name,
        "registered_name": "function",
    }


def errors(config: Any, *known: str) -> list[str]:
    findings = Findings()
    scan_config(config, findings, frozenset(known), where="config.json")
    return [each.what for each in findings.all() if each.severity == "error"]


def columns(class_name: str, key: str) -> dict[str, Any]:
    """A layer of columns of features, one of which names a file."""
    column = {"class_name": class_name, "config": {key: "/etc/passwd"}}
    return {"class_name": "DenseFeatures", "config": {"feature_columns": [column]}}


LAMBDA = {"class_name": "Lambda", "config": {"function": function("system", "os")}}
TF_OP = {"class_name": "TFOpLambda", "config": {"name": "w", "function": "io.write_file"}}
# Beside those that are cases of the corpus.
HOSTILE = {
    "Lambda inside a wrapper": {"class_name": "TimeDistributed", "config": {"layer": LAMBDA}},
    "Lambda in a deeper model": model_of(model_of(model_of(LAMBDA))),
    "class of Keras's name in another module": {
        "class_name": "Dense",
        "module": "my_package",
        "config": {},
    },
    "registered under another name": {
        "class_name": "Dense",
        "module": "keras.layers",
        "registered_name": "deserialize",
        "config": {},
    },
    "module that is a list": {"class_name": "Dense", "module": ["os"], "config": {}},
    "class that is a list": {"class_name": ["Dense"], "config": {}},
    "module that only begins like one": {**TF_OP, "config": {"function": "mathx.write_file"}},
    "method": {"class_name": "InstanceMethod", "config": {"attr_name": "numpy"}},
    "checkpoint of a column": columns("EmbeddingColumn", "ckpt_to_load_from"),
    "column that Keras does not have": columns("Mine", "key"),
    "layer that Keras does not have": {"class_name": "Mine", "config": {}},
    "activation that Keras does not have": {**DENSE, "config": {"activation": "backend"}},
    "initializer that Keras does not have": {**DENSE, "config": {"bias_initializer": "mine"}},
    "name inside Keras": {"class_name": "get_file", "module": "keras.src.utils", "config": {}},
    "in an argument of a call": {**DENSE, "inbound_nodes": [{"kwargs": {"x": LAMBDA}}]},
}
HARMLESS = [
    {**DENSE, "module": "keras.layers", "registered_name": None},
    {**DENSE, "config": {"activation": function("relu", "builtins")}},
    {**TF_OP, "config": {"function": "math.multiply"}},
    {**TF_OP, "config": {"function": "compat.v1.nn.conv2d"}},
    {"class_name": "SlicingOpLambda", "config": {"function": "__operators__.getitem"}},
    {"class_name": "Sin", "module": "keras.src.ops.numpy", "registered_name": "Sin", "config": {}},
    {"class_name": "LayerScale", "module": "keras.src.applications.convnext", "config": {}},
    {"class_name": "TFDConcat", "module": "keras.src.layers.preprocessing.feature_space"},
    {"class_name": "StringLookup", "config": {"vocabulary": ["a", "b"]}},
    {"class_name": "Policy", "config": {"name": "mixed_float16"}},
]


@pytest.mark.parametrize("layer", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_configuration_that_calls_or_reads_is_refused(layer):
    assert errors(model_of(layer))


def test_a_lambda_layer_is_one_finding_with_its_function():
    written = {"class_name": "__lambda__", "config": {"code": "4w"}}
    layer = {"class_name": "Lambda", "config": {"function": written}}
    assert errors(model_of(layer)) == ["a Lambda layer"]
    assert errors({**DENSE, "config": {"activation": written}}) == ["a __lambda__ layer"]


@pytest.mark.parametrize("layer", HARMLESS)
def test_one_that_only_computes_is_not(layer):
    assert errors(model_of(layer)) == []


def test_what_compiles_the_model_is_not_read_and_so_only_told():
    config = {**model_of(), "compile_config": {"loss": function("my_loss", "my_package")}}
    findings = Findings()
    scan_config(config, findings, frozenset(), where="config.json")
    assert [each.severity for each in findings.all()] == ["warn"]


def test_classes_of_modules_that_the_user_names_are_allowed_and_no_others():
    mine = {"class_name": "Mine", "module": "mine", "registered_name": "p>Mine", "config": {}}
    assert errors(model_of(mine)) == ["'p>Mine', which only the code that made the model knows"]
    assert errors(model_of(mine), "mine:Mine") == []
    assert errors(model_of({**mine, "module": "os"}), "mine")
    assert errors(model_of({**mine, "module": None}), "mine") == []
    assert errors(model_of({**DENSE, "config": {"activation": "mine"}}), "mine") == []
    assert errors(model_of(columns("Mine", "vocabulary_file")), "mine")
    assert errors(model_of({**DENSE, "config": {"a": function("eval", "builtins")}}), "mine")


def archive(path: Path, config: Any, *, metadata: str = "3.15.0", **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", json.dumps({"keras_version": metadata}))
        file.writestr("config.json", json.dumps(config))
        for name, content in members.items():
            file.writestr(name, content)
    return path


def whats(found: Scan) -> str:
    return " ".join(each.what for each in found.findings if each.severity == "error")


def test_what_keras_has_quantized_is_not_taken_for_code_of_the_user(tmp_path):
    quantizer = {"class_name": "AbsMaxQuantizer", "module": "keras.quantizers", "config": {}}
    config = {"activation_quantizer": {**quantizer, "registered_name": None}}
    whole = {"class_name": "Int8QuantizationConfig", "module": "keras.quantizers", "config": config}
    layer = {**DENSE, "config": {"name": "d", "quantization_config": whole}}
    path = archive(tmp_path / "m.keras", model_of(layer))
    assert whats(scan(path)) == QUANTIZED_BY_KERAS
    with pytest.raises(InputRefused) as refused:
        admit_model(path)
    assert "--trust-model" not in refused.value.hint


@pytest.mark.parametrize("version", ["2.15.0", "3.15.0", "2."])
def test_a_keras_archive_is_looked_at_whichever_keras_it_says_it_is_of(version, tmp_path):
    fine = archive(tmp_path / "fine.keras", model_of(), metadata=version)
    assert scan(fine).findings == ()
    assert "Lambda" in whats(
        scan(archive(tmp_path / "m.keras", model_of(LAMBDA), metadata=version))
    )


@pytest.mark.parametrize("name", ["a/../../b", "C:\\b"], ids=["within", "drive"])
def test_an_archive_whose_entries_lead_out_is_refused(name, tmp_path):
    assert scan(archive(tmp_path / "m.keras", model_of(), **{name: b""})).is_refused


def hdf5(path: Path, config: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.create_dataset("model_weights/d/kernel", data=np.ones((4, 3), np.float32))
        file["model_weights/again"] = h5py.SoftLink("/model_weights/d")
        file["model_weights/d/up"] = file["model_weights"]
    return path


def test_weights_of_an_archive_that_claim_more_than_the_file_can_hold_are_refused(tmp_path):
    weights = hdf5(tmp_path / "m.h5", model_of())
    with h5py.File(weights, "a") as file:
        file.create_dataset("w", (2**20, 2**20), np.float32, chunks=(1024, 1024))
    members = {"model.weights.h5": weights.read_bytes()}
    found = scan(archive(tmp_path / "m.keras", model_of(), **members))
    assert [each.kind for each in found.findings] == ["structure"]


def test_a_plain_hdf5_model_is_allowed_and_one_with_a_lambda_is_not(tmp_path):
    assert scan(hdf5(tmp_path / "fine.h5", model_of())).findings == ()
    assert "Lambda" in whats(scan(hdf5(tmp_path / "lambda.h5", model_of(LAMBDA))))


@pytest.mark.parametrize("raw", ["[" * 100_000, "{", "[]", '"x"'])
def test_a_configuration_that_is_not_one_is_refused_as_input(raw, tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs.create("model_config", np.bytes_(raw[:60_000]))
    with pytest.raises(InputRefused):
        scan(tmp_path / "m.h5")


def test_layers_beside_a_saved_model_that_keras_does_not_have_are_taken_from_its_graph(tmp_path):
    model = write(tmp_path / "m", meta_graph(graph()))
    for layer, is_refused in ((columns("Mine", "key"), False), (columns("M", "vocabulary"), True)):
        content = json.dumps(model_of(layer))
        (model / "keras_metadata.pb").write_bytes(block(1, block(3, "root") + block(5, content)))
        assert scan(model, reads_layers=True).is_refused is is_refused


@pytest.mark.parametrize(
    "layer", [LAMBDA, TF_OP, {"class_name": "x", "module": "os", "config": {}}]
)
def test_layers_beside_a_saved_model_are_held_where_it_is_trained_on(layer, tmp_path):
    """Only then they are made again; converting takes what the SavedModel computes."""
    model = write(tmp_path / "m", meta_graph(graph()))
    content = json.dumps(model_of(layer))
    (model / "keras_metadata.pb").write_bytes(block(1, block(3, "root") + block(5, content)))
    assert not scan(model).is_refused
    assert scan(model).findings
    assert scan(model, reads_layers=True).is_refused
    (model / "keras_metadata.pb").write_bytes(block(1, block(5, "{")))
    assert scan(model, reads_layers=True).is_refused
