"""Keras files that call what they name, or read other files; none of them gets past the scan."""

from __future__ import annotations

import json
import stat
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from graph_files import block, graph, meta_graph, write

from edgeconv import scan
from edgeconv.errors import InputRefused
from edgeconv.source.scanning.findings import Findings
from edgeconv.source.scanning.keras_config import scan_config

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import Scan

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


LAMBDA = {"class_name": "Lambda", "config": {"function": function("system", "os")}}
TF_OP = {"class_name": "TFOpLambda", "config": {"name": "w", "function": "io.write_file"}}
HOSTILE = {
    "Lambda of a function of a module": LAMBDA,
    "Lambda of bytecode": {"class_name": "Lambda", "config": {"function": ["4wEAAAA", None, None]}},
    "Lambda inside a wrapper": {"class_name": "TimeDistributed", "config": {"layer": LAMBDA}},
    "Lambda in a deeper model": model_of(model_of(model_of(LAMBDA))),
    "bytecode": {"class_name": "__lambda__", "config": {"value": "4wEA"}, "module": "builtins"},
    "function as activation": {
        **DENSE,
        "config": {"activation": function("system", "os")},
    },
    "built-in function": {**DENSE, "config": {"activation": function("eval", "builtins")}},
    "function of Keras that reads": {
        **DENSE,
        "config": {"activation": function("get_file", "keras.utils")},
    },
    "class of another module": {"class_name": "Popen", "module": "subprocess", "config": {}},
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
    "write": TF_OP,
    "write in version 1": {**TF_OP, "config": {"function": "compat.v1.write_file"}},
    "SavedModel": {**TF_OP, "config": {"function": "saved_model.load"}},
    "copy": {**TF_OP, "config": {"function": "io.gfile.copy"}},
    "Python": {**TF_OP, "config": {"function": "py_function"}},
    "raw operator": {**TF_OP, "config": {"function": "raw_ops.WriteFile"}},
    "module that only begins like one": {**TF_OP, "config": {"function": "mathx.write_file"}},
    "slicing": {"class_name": "SlicingOpLambda", "config": {"function": "io.read_file"}},
    "operator": {"class_name": "TensorFlowOpLayer", "config": {"node_def": "op: 'WriteFile'"}},
    "method": {"class_name": "InstanceMethod", "config": {"attr_name": "numpy"}},
    "class method": {"class_name": "ClassMethod", "config": {"cls_symbol": "io.TFRecordWriter"}},
    "type": {
        "class_name": "__typespec__",
        "spec_name": "system",
        "module": "os",
        "registered_name": None,
        "config": [],
    },
    "vocabulary": {"class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
    "vocabulary of TextVectorization": {
        "class_name": "TextVectorization",
        "config": {"vocabulary": "/etc/passwd"},
    },
    "tokenizer": {
        "class_name": "BytePairTokenizer",
        "module": "keras_hub.src.tokenizers.byte_pair_tokenizer",
        "registered_name": "keras_hub>BytePairTokenizer",
        "config": {"merges": "/etc/passwd"},
    },
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
    {"class_name": "StringLookup", "config": {"vocabulary": ["a", "b"]}},
    {"class_name": "Policy", "config": {"name": "mixed_float16"}},
]


@pytest.mark.parametrize("layer", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_configuration_that_calls_or_reads_is_refused(layer):
    assert errors(model_of(layer))


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


@pytest.mark.parametrize("version", ["2.15.0", "3.15.0", "2."])
def test_a_keras_archive_is_looked_at_whichever_keras_it_says_it_is_of(version, tmp_path):
    fine = archive(tmp_path / "fine.keras", model_of(), metadata=version)
    assert scan(fine).findings == ()
    assert "Lambda" in whats(
        scan(archive(tmp_path / "m.keras", model_of(LAMBDA), metadata=version))
    )


@pytest.mark.parametrize(
    "members",
    [
        {"../escaped": b""},
        {"/absolute": b""},
        {"a/../../b": b""},
        {"C:\\b": b""},
        {"..\\b": b""},
        {"weights.npz": b"PK"},
        {"model.weights.json": json.dumps({"weight_map": {"a": "../../x.h5"}}).encode()},
        {"zeros": bytes(2**29)},
    ],
    ids=["up", "absolute", "within", "drive", "backslash", "npz", "shards", "bomb"],
)
def test_an_archive_whose_entries_lead_out_or_blow_up_is_refused(members, tmp_path):
    assert scan(archive(tmp_path / "m.keras", model_of(), **members)).is_refused


def test_an_archive_with_a_link_or_two_entries_of_a_name_is_refused(tmp_path):
    link = zipfile.ZipInfo("assets")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    linked = archive(tmp_path / "link.keras", model_of())
    with zipfile.ZipFile(linked, "a") as file:
        file.writestr(link, "/etc")
    assert whats(scan(linked)) == "a symbolic link"
    twice = archive(tmp_path / "twice.keras", model_of(LAMBDA))
    with zipfile.ZipFile(twice, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("config.json", json.dumps(model_of()))
    assert "two files of one name" in whats(scan(twice))


def hdf5(path: Path, config: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.create_dataset("model_weights/d/kernel", data=np.ones((4, 3), np.float32))
        file["model_weights/again"] = h5py.SoftLink("/model_weights/d")
        file["model_weights/d/up"] = file["model_weights"]
    return path


def external_link(file: h5py.File) -> None:
    file["model_weights/out"] = h5py.ExternalLink("other.h5", "/x")


def external_storage(file: h5py.File) -> None:
    file.create_dataset("w", (4,), np.uint8, external=[("/etc/passwd", 0, 4)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype=np.uint8)
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(4,))
    file.create_virtual_dataset("w", layout)


def unwritten(file: h5py.File) -> None:
    file.create_dataset("w", (2**20, 2**20), np.float32, chunks=(1024, 1024))


@pytest.mark.parametrize("damage", [external_link, external_storage, virtual, unwritten])
@pytest.mark.parametrize("is_archive", [False, True])
def test_hdf5_that_takes_bytes_of_other_files_is_refused(damage, is_archive, tmp_path):
    """Also as the weights of an archive; and what claims more than the file can hold."""
    weights = hdf5(tmp_path / "m.h5", model_of())
    with h5py.File(weights, "a") as file:
        damage(file)
    model = weights
    if is_archive:
        members = {"model.weights.h5": weights.read_bytes()}
        model = archive(tmp_path / "m.keras", model_of(), **members)
    found = scan(model)
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
