"""Small files of other kinds of models, as their own tools lay them out."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING

from tiny_saved_model import PLAIN, block, meta_graph, number

if TYPE_CHECKING:
    from pathlib import Path

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 132735\n"
)


def archive(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name in names:
            file.writestr(name, b"content")
    return packed.getvalue()


def tar(*names: str, mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as file:  # type: ignore[call-overload]
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 7
            file.addfile(member, io.BytesIO(b"content"))
    return packed.getvalue()


def node(name: str, operator: str) -> bytes:
    return block(1, block(1, name) + block(2, operator))


def text(**values: object) -> bytes:
    return json.dumps(values).encode()


FROZEN = node("x", "Placeholder") + node("y", "Identity") + block(4, number(1, 1087))
ONNX = (
    number(1, 8)
    + block(2, "pytorch")
    + block(7, block(1, block(4, "Relu")) + block(2, "graph"))
    + block(8, number(2, 17))
)
META_GRAPH = block(1, block(2, block(1, "ops")) + block(4, "serve")) + block(2, FROZEN)
SAVED_MODEL = number(1, 1) + block(2, meta_graph({"serving_default": PLAIN}))
CORE_ML = number(1, 5) + block(2, block(1, "input")) + block(500, b"")
SAFETENSORS = struct.pack("<Q", 20) + b'{"a":{"dtype":"F32"}}'[:20] + bytes(8)
OLD_TORCH = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + b"rest"
TABLE = bytes(64) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
KERAS_JSON = text(class_name="Functional", config={"name": "m", "layers": []}, backend="tensorflow")
TFJS_LAYERS = text(
    format="layers-model",
    modelTopology={"model_config": {}},
    weightsManifest=[{"paths": ["a.bin"]}],
)
TFJS_GRAPH = text(format="graph-model", modelTopology={"node": []}, weightsManifest=[])
OPENVINO = b'<?xml version="1.0"?>\n<net name="m" version="11"><layers/></net>'

# The name of a file, its content, what it is, and what the way out names.
FOREIGN = [
    ("a.onnx", ONNX, "an ONNX model", "onnx2tf -i"),
    ("a.pb", ONNX, "an ONNX model", "onnx2tf -i"),
    ("frozen_inference_graph.pb", FROZEN, "a frozen TensorFlow graph", "docs/models.md"),
    ("a.tflite", FROZEN, "a frozen TensorFlow graph", "docs/models.md"),
    ("graph.pbtxt", b'node {\n  name: "x"\n', "a TensorFlow graph as text", "docs/models.md"),
    ("a.pb", SAVED_MODEL, "the graph of a SavedModel without its directory", "variables/"),
    ("m.pbtxt", b"saved_model_schema_version: 1\n", "a SavedModel in text form", "without as_text"),
    ("x.meta", META_GRAPH, "the graph of a TensorFlow 1 checkpoint", "docs/models.md"),
    ("x.ckpt.index", TABLE, "a TensorFlow checkpoint", "load_weights"),
    ("x.data-00000-of-00001", bytes(64), "a TensorFlow checkpoint", "load_weights"),
    ("checkpoint", b'model_checkpoint_path: "x"\n', "a TensorFlow checkpoint", "load_weights"),
    ("a.pt", archive("a/data.pkl", "a/version"), "weights that PyTorch saved", "litert_torch"),
    ("pytorch_model.bin", archive("a/data.pkl"), "weights that PyTorch saved", "litert_torch"),
    ("a.keras", archive("a/data.pkl"), "weights that PyTorch saved", "litert_torch"),
    ("a.pt", archive("a/data.pkl", "a/constants.pkl"), "a TorchScript model", "litert_torch"),
    ("a.pt2", archive("serialized_exported_program.json"), "torch.export", "litert_torch"),
    ("a.pth", OLD_TORCH, "weights that PyTorch saved", "litert_torch"),
    ("a.safetensors", SAFETENSORS, "a safetensors file", "load the weights into it"),
    ("a.joblib", pickle.dumps({"sklearn": 1}), "a pickled scikit-learn model", "Keras"),
    ("a.pkl", pickle.dumps({"weights": 1}), "a pickled Python object", "never loaded"),
    ("model.json", KERAS_JSON, "the architecture of a Keras model as text", "model_from_json"),
    ("a.h5", KERAS_JSON, "the architecture of a Keras model as text", "model_from_json"),
    ("a.yaml", b"class_name: Sequential\nconfig:\n", "as YAML", "model_from_json"),
    ("model.json", TFJS_LAYERS, "a TensorFlow.js layers model", "--input_format=tfjs_layers_model"),
    ("model.json", TFJS_GRAPH, "a TensorFlow.js graph model", "tfjs_graph_converter"),
    ("config.json", text(model_type="bert", architectures=["X"]), "Hugging Face", "model.save"),
    ("a.mlmodel", CORE_ML, "a Core ML model", "made from"),
    ("a.xml", OPENVINO, "an OpenVINO model", "made from"),
    ("a.engine", b"ptrt" + bytes(40), "a TensorRT engine", "built from"),
    ("a.task", archive("hand_detector.tflite", "b.tflite"), "a MediaPipe task bundle", "unzip"),
    ("a.litertlm", b"LITERTLM" + bytes(40), "a LiteRT-LM bundle", "made from"),
    ("a.npz", archive("kernel.npy", "bias.npy"), "an archive of arrays", "set_weights"),
    ("m.zip", archive("m/saved_model.pb"), "a zip archive with a model in it", "give m"),
    ("m.keras", archive("m/saved_model.pb"), "a zip archive with a model in it", "give m"),
    ("m.tar.gz", tar("m/saved_model.pb"), "a tar archive with a model in it", "give m"),
    ("m.tar", tar("x/a.h5", mode="w:"), "a tar archive with a model in it", "give x/a.h5"),
    ("a.gguf", b"GGUF" + bytes(40), "a GGUF file", "does not convert"),
    ("a.pte", b"\0\0\0\0ET12" + bytes(40), "an ExecuTorch program", "litert_torch"),
]


def write(directory: Path, contents: dict[str, bytes]) -> Path:
    """The directory, with files of these relative names and contents in it."""
    for name, content in contents.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return directory
