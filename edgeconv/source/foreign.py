"""Models of other kinds: what they are, by their content, and how to bring them here.

Nothing of them is run, and only beginnings, ends and lists of names are read.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import tarfile
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple

from edgeconv.source.wire import fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edgeconv.source.wire import Field

_HEAD_BYTES = 1 << 16
_MOST_JSON_BYTES = 1 << 26
_MOST_FIELDS = 4096
_MOST_MEMBERS = 4096
_MOST_FILES = 64
# What zipfile and tarfile raise on damaged archives.
_BAD_ARCHIVE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    ValueError,
)


class Foreign(NamedTuple):
    """A kind of model that edgeconv does not take: what it is, and the way out."""

    what: str
    hint: str


_TORCH_HINT = (
    "build the network in Python, load its weights, and convert it to a float .tflite "
    "(pip install litert-torch): litert_torch.convert(network.eval(), (sample,))"
    ".export('model.tflite'); give edgeconv that"
)
_TORCH = Foreign("weights that PyTorch saved", _TORCH_HINT)
_TORCH_SCRIPT = Foreign("a TorchScript model of PyTorch", _TORCH_HINT)
_TORCH_EXPORT = Foreign("a program that torch.export saved", _TORCH_HINT)
_SAFETENSORS = Foreign(
    "a safetensors file, which has weights and no network",
    "build the network in Python, load the weights into it, and save it whole: "
    "model.save('NAME.keras') in Keras, or by litert_torch in PyTorch",
)
_ONNX = Foreign(
    "an ONNX model",
    "convert it to a SavedModel: pip install onnx2tf, onnx2tf -i MODEL.onnx -o DIR -osd; then "
    "give edgeconv DIR. -osd adds the signature",
)
_FROZEN = Foreign(
    "a frozen TensorFlow graph (GraphDef), which has no signature",
    "export it as a SavedModel, with the names of its ends; docs/models.md has the lines to do it",
)
_SAVED_MODEL_FILE = Foreign(
    "the graph of a SavedModel without its directory",
    "give the directory that was exported, with saved_model.pb and variables/ in it",
)
_SAVED_MODEL_TEXT = Foreign(
    "a SavedModel in text form",
    "save it again without as_text, so that it has a saved_model.pb",
)
_CHECKPOINT = Foreign(
    "a TensorFlow checkpoint, which has weights and no network",
    "build the network in Python, load the checkpoint into it (model.load_weights('PREFIX')), "
    "and save it whole: model.save('NAME.keras'); where there is a .meta file too, docs/models.md "
    "has the lines to export it",
)
_META_GRAPH = Foreign(
    "the graph of a TensorFlow 1 checkpoint (MetaGraph)",
    "restore it and export it as a SavedModel; docs/models.md has the lines to do it",
)
_TFJS_LAYERS = Foreign(
    "a TensorFlow.js layers model",
    "pip install tensorflowjs, then tensorflowjs_converter --input_format=tfjs_layers_model "
    "--output_format=keras model.json model.h5; give edgeconv model.h5",
)
_TFJS_GRAPH = Foreign(
    "a TensorFlow.js graph model",
    "pip install tfjs-graph-converter, then tfjs_graph_converter DIR SAVED_MODEL "
    "--output_format tf_saved_model; give edgeconv SAVED_MODEL",
)
_KERAS_JSON = Foreign(
    "the architecture of a Keras model as text, without weights",
    "build it, load its weights, and save it whole: model = "
    "keras.models.model_from_json(open('model.json').read()), "
    "model.load_weights('WEIGHTS.h5'), model.save('NAME.keras'); with tf_keras for one of Keras 1 "
    "or 2",
)
_UNZIPPED_KERAS = Foreign(
    "an unzipped .keras file",
    "zip its files without compression: cd DIR, zip -r -0 ../NAME.keras .",
)
_CORE_ML = Foreign(
    "a Core ML model",
    "Core ML models are not converted back; export the model that it was made from",
)
_OPENVINO = Foreign(
    "an OpenVINO model",
    "OpenVINO models are not converted back; export the model that it was made from",
)
_TENSOR_RT = Foreign(
    "a TensorRT engine, which is compiled for one GPU",
    "engines are not converted back; give the model that it was built from",
)
_TASK = Foreign(
    "a MediaPipe task bundle (a zip archive of .tflite files)",
    "unzip it, and give one of the .tflite files in it",
)
_LITERT_LM = Foreign(
    "a LiteRT-LM bundle of a language model",
    "it is in its last form for a device already; edgeconv takes the model that it was made from",
)
_FOREST = Foreign(
    "a decision forest (Yggdrasil)",
    "TFLite has no operators for forests; export it as C++: pip install ydf, "
    "ydf.load_model('DIR').to_standalone_cc(); or train a network",
)
FOREST_SAVED_MODEL = Foreign(
    "a TensorFlow Decision Forests model",
    "TFLite has no operators for forests; export it as C++: pip install ydf, "
    "ydf.from_tensorflow_decision_forests('DIR').to_standalone_cc(); or train a network",
)
_HUB_MODULE = Foreign(
    "a TensorFlow 1 Hub module, which is not tagged for serving",
    "export it as a SavedModel for serving; docs/models.md has the lines to do it",
)
_SKLEARN = Foreign(
    "a pickled scikit-learn model",
    "it cannot become a .tflite file, and pickles are never loaded, for they run code; train a "
    "network in Keras",
)
_PICKLE = Foreign(
    "a pickled Python object",
    "pickles are never loaded, for they run code; save the model whole: model.save('NAME.keras')",
)
_ARRAYS = Foreign(
    "an archive of arrays, as np.savez writes it",
    "weights alone are not a model: set them in the network that they are of "
    "(model.set_weights(...)), and save it whole: model.save('NAME.keras')",
)
_PADDLE = Foreign("a PaddlePaddle model", "convert it to ONNX with paddle2onnx, then see ONNX")
_CAFFE = Foreign("a Caffe model", "build the network in Keras, and save it with its weights")

_BEGINNINGS: tuple[tuple[int, bytes, Foreign], ...] = (
    (0, b"GGUF", Foreign("a GGUF file of a language model", "edgeconv does not convert these")),
    (0, b"LITERTLM", _LITERT_LM),
    (0, b"ptrt", _TENSOR_RT),
    (0, b"ftrt", _TENSOR_RT),
    (4, b"ORTM", Foreign("an ONNX Runtime model", "give the .onnx file to onnx2tf")),
    (4, b"ET12", Foreign("an ExecuTorch program", _TORCH_HINT)),
    # torch.save of before 1.6, which is a pickle that begins with this number.
    (0, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", _TORCH),
)
# Where the content tells nothing.
_NAMES = {"checkpoint": _CHECKPOINT, "saved_model.pbtxt": _SAVED_MODEL_TEXT}
_SUFFIXES = {
    **dict.fromkeys((".pt", ".pth"), _TORCH),
    **dict.fromkeys((".engine", ".plan", ".trt"), _TENSOR_RT),
    ".caffemodel": _CAFFE,
    ".ckpt": _CHECKPOINT,
    ".index": _CHECKPOINT,
    ".joblib": _SKLEARN,
    ".mlmodel": _CORE_ML,
    ".onnx": _ONNX,
    ".pdmodel": _PADDLE,
    ".safetensors": _SAFETENSORS,
}
# The end of LevelDB's tables, which the index of a checkpoint is.
_TABLE_END = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
_MEMBERS = (
    ({"header.pb", "data_spec.pb"}, _FOREST),
    ({"config.json", "metadata.json", "model.weights.h5"}, _UNZIPPED_KERAS),
)
# The files of a directory that say what it is, the most telling first.
_TELLING = (
    *("saved_model.pbtxt", ".pb", ".json", ".index", "checkpoint", ".onnx", ".pt", ".pth"),
    *(".safetensors", ".bin", ".xml", ".task", ".engine", ".plan", ".mlmodel"),
)
_DATA_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
_OPERATOR = re.compile(rb"[A-Za-z][A-Za-z0-9_>]*")
_IN_ARCHIVE = re.compile(r"(^|/)saved_model\.pb$|\.(keras|h5|hdf5|tflite)$")


def foreign_file(path: Path) -> Foreign | None:
    """Which other kind of model a file is; None where it is none that is known.

    Raises `OSError` where it cannot be read.
    """
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        for offset, beginning, found in _BEGINNINGS:
            if head[offset:].startswith(beginning):
                return found
        readers: tuple[Callable[[IO[bytes], int, bytes], Foreign | None], ...] = (
            _archive,
            _pickle,
            _table,
            _safetensors,
            _text,
            _message,
        )
        for reader in readers:
            if found_by := reader(file, size_bytes, head):
                return found_by
    if path.name in _NAMES:
        return _NAMES[path.name]
    if _DATA_SHARD.search(path.name):
        return _CHECKPOINT
    beside = path.with_name("model.json")
    if path.suffix == ".bin" and beside.is_file():
        return foreign_file(beside)
    return _SUFFIXES.get(path.suffix.lower())


def foreign_directory(path: Path) -> tuple[Path, Foreign] | None:
    """Which other kind of model a directory holds, and in which file or directory.

    None where it is none that is known. Raises `OSError` where it cannot be read.
    """
    names = {entry.name for entry in path.iterdir()}
    if "tfhub_module.pb" in names:
        return path, _HUB_MODULE
    if "saved_model.pb" in names:
        return None
    for members, found in _MEMBERS:
        if members <= names:
            return path, found
    if "Manifest.json" in names and (path / "Data" / "com.apple.CoreML").exists():
        return path, _CORE_ML
    telling = (name for end in _TELLING for name in sorted(names) if name.lower().endswith(end))
    for name in itertools.islice(telling, _MOST_FILES):
        if (path / name).is_file() and (found_in := foreign_file(path / name)):
            return path / name, found_in
    return None


def _archive(file: IO[bytes], _size_bytes: int, head: bytes) -> Foreign | None:
    file.seek(0)
    with contextlib.suppress(*_BAD_ARCHIVE):
        if head.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(file) as archive:
                return _by_members(archive.namelist()[:_MOST_MEMBERS], "a zip archive", "unzip")
        if head.startswith(b"\x1f\x8b") or head[257:262] == b"ustar":
            return _by_members(_tar_members(file), "a tar archive", "tar -xf")
    return None


def _tar_members(file: IO[bytes]) -> list[str]:
    """The first names in a tar archive; of one that is compressed, those near its beginning."""
    packed = file.read(_MOST_JSON_BYTES)
    if packed.startswith(b"\x1f\x8b"):
        packed = zlib.decompressobj(wbits=31).decompress(packed, _MOST_JSON_BYTES)
    names: list[str] = []
    # What was read ends in the middle of a member.
    with contextlib.suppress(*_BAD_ARCHIVE), tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            names.append(member.name)
            if len(names) == _MOST_MEMBERS:
                break
    return names


def _by_members(names: list[str], what: str, command: str) -> Foreign | None:
    ends = {name.rpartition("/")[2] for name in names}
    if "config.json" in ends and "model.weights.h5" in ends and "config.json" in names:
        return None  # A .keras file.
    if "data.pkl" in ends:
        return _TORCH_SCRIPT if "constants.pkl" in ends else _TORCH
    if any(name.endswith("serialized_exported_program.json") for name in names) or any(
        "/models/model.json" in f"/{name}" for name in names
    ):
        return _TORCH_EXPORT
    if any("com.apple.CoreML" in name for name in names):
        return _CORE_ML
    if names and all(name.endswith(".npy") for name in names):
        return _ARRAYS
    models = [name for name in names if _IN_ARCHIVE.search(name)]
    if command == "unzip" and models and all(name.endswith(".tflite") for name in models):
        return _TASK
    if not models:
        return None
    inside = models[0].removesuffix("saved_model.pb").rstrip("/") or "the directory"
    return Foreign(
        f"{what} with a model in it ({models[0]})",
        f"unpack it ({command} ARCHIVE), and give {inside}",
    )


def _pickle(_file: IO[bytes], size_bytes: int, head: bytes) -> Foreign | None:
    is_binary = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if not is_binary or size_bytes < 3:
        return None
    if b"torch" in head:
        return _TORCH
    return _SKLEARN if b"sklearn" in head else _PICKLE


def _table(file: IO[bytes], size_bytes: int, _head: bytes) -> Foreign | None:
    if size_bytes < len(_TABLE_END):
        return None
    file.seek(size_bytes - len(_TABLE_END))
    return _CHECKPOINT if file.read() == _TABLE_END else None


def _safetensors(_file: IO[bytes], size_bytes: int, head: bytes) -> Foreign | None:
    length = int.from_bytes(head[:8], "little")
    return _SAFETENSORS if head[8:10] == b'{"' and 2 <= length <= size_bytes - 8 else None


def _text(file: IO[bytes], size_bytes: int, head: bytes) -> Foreign | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and size_bytes <= _MOST_JSON_BYTES:
        file.seek(0)
        return _json(file.read())
    if start.startswith((b"class_name:", b"backend:", b"!!python")):
        return _KERAS_JSON._replace(what="the architecture of a Keras model as YAML, no weights")
    if start.startswith((b"model_checkpoint_path:", b"all_model_checkpoint_paths:")):
        return _CHECKPOINT
    if re.match(rb"node\s*\{", start):
        return _FROZEN._replace(what="a TensorFlow graph as text (GraphDef), without a signature")
    if start.startswith(b"saved_model_schema_version:"):
        return _SAVED_MODEL_TEXT
    if start.startswith(b"<") and re.search(rb"<net\s[^>]*\bversion=", start):
        return _OPENVINO
    return None


def _json(raw: bytes) -> Foreign | None:
    try:
        found = json.loads(raw)
        # What to_json() gave, written as JSON once more.
        found = json.loads(found) if isinstance(found, str) else found
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    topology = found.get("modelTopology")
    if isinstance(topology, dict) or "weightsManifest" in found:
        is_graph = found.get("format") == "graph-model" or "node" in (topology or {})
        return _TFJS_GRAPH if is_graph else _TFJS_LAYERS
    if isinstance(found.get("class_name"), str) and "config" in found:
        return _KERAS_JSON
    if "model_type" in found and ("architectures" in found or "transformers_version" in found):
        return Foreign(
            "the configuration of a Hugging Face model",
            "load the model in Python and export it: model.save('DIR') of its TensorFlow class, "
            "or by litert_torch of its PyTorch class",
        )
    return None


def _message(file: IO[bytes], size_bytes: int, head: bytes) -> Foreign | None:
    """Protocol buffers, told apart by the numbers of their fields."""
    if head[:1] not in (b"\x08", b"\x0a", b"\x12", b"\x1a", b"\x22"):
        return None
    try:
        found = list(fields(file, 0, size_bytes, most=_MOST_FIELDS))
        by_number = {field.number: field for field in reversed(found)}
        version = by_number[1].value
        numbers, most = set(by_number), max(by_number)
        if version is None:
            if most <= 4 and _is_node(file, by_number[1]):
                return _FROZEN
            return _META_GRAPH if 2 in numbers and most <= 7 else None
    except (ValueError, KeyError):
        return None
    if numbers == {1, 2}:
        return _SAVED_MODEL_FILE
    if {7, 8} <= numbers and most < 100:
        return _ONNX
    return _CORE_ML if 2 in numbers and most >= 200 else None


def _is_node(file: IO[bytes], field: Field) -> bool:
    """Whether a field is a node of a graph: its name, and that of its operator."""
    end = field.start + field.size_bytes
    texts = [part for part in fields(file, field.start, end, most=2) if part.value is None]
    if [part.number for part in texts] != [1, 2]:
        return False
    file.seek(texts[1].start)
    return _OPERATOR.fullmatch(file.read(min(texts[1].size_bytes, _HEAD_BYTES))) is not None
