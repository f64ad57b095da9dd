"""Models of other kinds, recognized by their content, and how to convert them.

They are not run; only their beginnings, ends and lists of names are read.
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
from typing import IO, TYPE_CHECKING

from edgeconv.source import foreign_kinds as kinds
from edgeconv.source.wire import MalformedWire, fields, mapped

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.source.wire import Field

_HEAD_BYTES = 1 << 16
# Of a document, whose objects take 30 times its size, and of an archive.
_MOST_JSON_BYTES = 1 << 22
_MOST_PACKED_BYTES = 1 << 26
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


_BEGINNINGS: tuple[tuple[int, bytes, kinds.Foreign], ...] = (
    (
        0,
        b"GGUF",
        kinds.Foreign("a GGUF file of a language model", "edgeconv does not convert these"),
    ),
    (0, b"LITERTLM", kinds.LITERT_LM),
    (0, b"ptrt", kinds.TENSOR_RT),
    (0, b"ftrt", kinds.TENSOR_RT),
    (4, b"ORTM", kinds.Foreign("an ONNX Runtime model", "give the .onnx file to onnx2tf")),
    (4, b"ET12", kinds.Foreign("an ExecuTorch program", kinds.TORCH_HINT)),
    # torch.save of before 1.6, which is a pickle that begins with this number.
    (0, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", kinds.TORCH),
)
# Where the content tells nothing.
_NAMES = {"checkpoint": kinds.CHECKPOINT, "saved_model.pbtxt": kinds.SAVED_MODEL_TEXT}
_SUFFIXES = {
    **dict.fromkeys((".pt", ".pth"), kinds.TORCH),
    **dict.fromkeys((".engine", ".plan", ".trt"), kinds.TENSOR_RT),
    ".caffemodel": kinds.CAFFE,
    ".ckpt": kinds.CHECKPOINT,
    ".index": kinds.CHECKPOINT,
    ".joblib": kinds.SKLEARN,
    ".mlmodel": kinds.CORE_ML,
    ".onnx": kinds.ONNX,
    ".pdmodel": kinds.PADDLE,
    ".safetensors": kinds.SAFETENSORS,
}
# The end of LevelDB's tables, which the index of a checkpoint is.
_TABLE_END = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
_MEMBERS = (
    ({"header.pb", "data_spec.pb"}, kinds.FOREST),
    ({"config.json", "metadata.json", "model.weights.h5"}, kinds.UNZIPPED_KERAS),
)
# The files of a directory that say what it is, the most telling first.
_TELLING = (
    *("saved_model.pbtxt", ".pb", ".json", ".index", "checkpoint", ".onnx", ".pt", ".pth"),
    *(".safetensors", ".bin", ".xml", ".task", ".engine", ".plan", ".mlmodel"),
)
_DATA_SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
_OPERATOR = re.compile(rb"[A-Za-z][A-Za-z0-9_>]*")
_IN_ARCHIVE = re.compile(r"(^|/)saved_model\.pb$|\.(keras|h5|hdf5|tflite)$")


def foreign_file(path: Path) -> kinds.Foreign | None:
    """Which other kind of model a file is; None if unknown. Raises `OSError`."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        for offset, beginning, kind in _BEGINNINGS:
            if head[offset:].startswith(beginning):
                return kind
        for reader in (_archive, _pickle, _table, _safetensors, _text, _message):
            if recognized := reader(file, size_bytes, head):
                return recognized
    if path.name in _NAMES:
        return _NAMES[path.name]
    if _DATA_SHARD.search(path.name):
        return kinds.CHECKPOINT
    topology = path.with_name("model.json")
    if path.suffix == ".bin" and topology.is_file():
        return foreign_file(topology)
    return _SUFFIXES.get(path.suffix.lower())


def foreign_directory(path: Path) -> tuple[Path, kinds.Foreign] | None:
    """Which other kind of model a directory holds, and in which file or directory.

    None if unknown. Raises `OSError`.
    """
    names = {entry.name for entry in path.iterdir()}
    if "tfhub_module.pb" in names:
        return path, kinds.HUB_MODULE
    if "saved_model.pb" in names:
        return None
    for members, kind in _MEMBERS:
        if members <= names:
            return path, kind
    if "Manifest.json" in names and (path / "Data" / "com.apple.CoreML").exists():
        return path, kinds.CORE_ML
    telling = (name for end in _TELLING for name in sorted(names) if name.lower().endswith(end))
    for name in itertools.islice(telling, _MOST_FILES):
        if (path / name).is_file() and (recognized := foreign_file(path / name)):
            return path / name, recognized
    return None


class _BoundedFile:
    """A file for zipfile that refuses a list of members larger than a model's."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size_bytes: int = -1) -> bytes:
        """As a file; raises `BadZipFile` for too much at once."""
        if size_bytes > _MOST_JSON_BYTES:
            raise zipfile.BadZipFile(f"a part of {size_bytes} bytes")
        return self._file.read(size_bytes if size_bytes >= 0 else _MOST_JSON_BYTES)


def _archive(file: IO[bytes], _size_bytes: int, head: bytes) -> kinds.Foreign | None:
    file.seek(0)
    with contextlib.suppress(*_BAD_ARCHIVE):
        if head.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(_BoundedFile(file)) as archive:
                return _by_members(archive.namelist()[:_MOST_MEMBERS], "a zip archive", "unzip")
        if head.startswith(b"\x1f\x8b") or head[257:262] == b"ustar":
            return _by_members(_tar_members(file), "a tar archive", "tar -xf")
    return None


def _tar_members(file: IO[bytes]) -> list[str]:
    """The first names in a tar archive, which may be compressed."""
    packed = file.read(_MOST_PACKED_BYTES)
    if packed.startswith(b"\x1f\x8b"):
        packed = zlib.decompressobj(wbits=31).decompress(packed, _MOST_PACKED_BYTES)
    names: list[str] = []
    # The bytes end within a member.
    with contextlib.suppress(*_BAD_ARCHIVE), tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            names.append(member.name)
            if len(names) == _MOST_MEMBERS:
                break
    return names


def _by_members(names: list[str], what: str, command: str) -> kinds.Foreign | None:
    ends = {name.rpartition("/")[2] for name in names}
    if "config.json" in ends and "model.weights.h5" in ends and "config.json" in names:
        return None  # A .keras file.
    if "data.pkl" in ends:
        return kinds.TORCH_SCRIPT if "constants.pkl" in ends else kinds.TORCH
    if any(name.endswith("serialized_exported_program.json") for name in names) or any(
        "/models/model.json" in f"/{name}" for name in names
    ):
        return kinds.TORCH_EXPORT
    if any("com.apple.CoreML" in name for name in names):
        return kinds.CORE_ML
    if names and all(name.endswith(".npy") for name in names):
        return kinds.ARRAYS
    models = [name for name in names if _IN_ARCHIVE.search(name)]
    if command == "unzip" and models and all(name.endswith(".tflite") for name in models):
        return kinds.TASK
    if not models:
        return None
    inside = models[0].removesuffix("saved_model.pb").rstrip("/") or "the directory"
    return kinds.Foreign(
        f"{what} with a model in it ({models[0]})",
        f"unpack it ({command} ARCHIVE), and give {inside}",
    )


def _pickle(_file: IO[bytes], size_bytes: int, head: bytes) -> kinds.Foreign | None:
    is_binary = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if not is_binary or size_bytes < 3:
        return None
    if b"torch" in head:
        return kinds.TORCH
    return kinds.SKLEARN if b"sklearn" in head else kinds.PICKLE


def _table(file: IO[bytes], size_bytes: int, _head: bytes) -> kinds.Foreign | None:
    if size_bytes < len(_TABLE_END):
        return None
    file.seek(size_bytes - len(_TABLE_END))
    return kinds.CHECKPOINT if file.read() == _TABLE_END else None


def _safetensors(_file: IO[bytes], size_bytes: int, head: bytes) -> kinds.Foreign | None:
    length = int.from_bytes(head[:8], "little")
    return kinds.SAFETENSORS if head[8:10] == b'{"' and 2 <= length <= size_bytes - 8 else None


def _text(file: IO[bytes], size_bytes: int, head: bytes) -> kinds.Foreign | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and size_bytes <= _MOST_JSON_BYTES:
        file.seek(0)
        return _json(file.read())
    if start.startswith((b"class_name:", b"backend:", b"!!python")):
        return kinds.KERAS_JSON._replace(
            what="the architecture of a Keras model as YAML, no weights"
        )
    if start.startswith((b"model_checkpoint_path:", b"all_model_checkpoint_paths:")):
        return kinds.CHECKPOINT
    if re.match(rb"node\s*\{", start):
        return kinds.FROZEN._replace(
            what="a TensorFlow graph as text (GraphDef), without a signature"
        )
    if start.startswith(b"saved_model_schema_version:"):
        return kinds.SAVED_MODEL_TEXT
    if start.startswith(b"<") and re.search(rb"<net\s[^<>]*\bversion=", start):
        return kinds.OPENVINO
    return None


def _json(raw: bytes) -> kinds.Foreign | None:
    try:
        document = json.loads(raw)
        # The text of to_json(), encoded as JSON again.
        document = json.loads(document) if isinstance(document, str) else document
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    topology = document.get("modelTopology")
    if isinstance(topology, dict) or "weightsManifest" in document:
        is_graph = document.get("format") == "graph-model" or "node" in (topology or {})
        return kinds.TFJS_GRAPH if is_graph else kinds.TFJS_LAYERS
    if isinstance(document.get("class_name"), str) and "config" in document:
        return kinds.KERAS_JSON
    if "model_type" in document and {"architectures", "transformers_version"} & document.keys():
        return kinds.Foreign(
            "the configuration of a Hugging Face model",
            "load the model in Python and export it: model.save('DIR') of its TensorFlow class, "
            "or by litert_torch of its PyTorch class",
        )
    return None


def _message(file: IO[bytes], size_bytes: int, head: bytes) -> kinds.Foreign | None:
    """Protocol buffers, recognized by the numbers of their fields."""
    if head[:1] not in (b"\x08", b"\x0a", b"\x12", b"\x1a", b"\x22"):
        return None
    try:
        with mapped(file) as data:
            top = list(itertools.islice(fields(data, 0, size_bytes), _MOST_FIELDS))
            by_number = {field.number: field for field in reversed(top)}
            first = by_number[1]
            is_node = first.is_message and _is_node(data, first)
    except (MalformedWire, KeyError):
        return None
    numbers, most = set(by_number), max(by_number)
    if first.is_message:
        if most <= 4 and is_node:
            return kinds.FROZEN
        return kinds.META_GRAPH if 2 in numbers and most <= 7 else None
    if numbers == {1, 2}:
        return kinds.SAVED_MODEL_FILE
    if {7, 8} <= numbers and most < 100:
        return kinds.ONNX
    return kinds.CORE_ML if 2 in numbers and most >= 200 else None


def _is_node(data: memoryview, field: Field) -> bool:
    """Whether a field is a node of a graph: its name, and that of its operator."""
    inside = itertools.islice(fields(data, field.content, field.stop), 2)
    texts = [part for part in inside if part.is_message]
    if [part.number for part in texts] != [1, 2]:
        return False
    stop = min(texts[1].stop, texts[1].content + _HEAD_BYTES)
    return _OPERATOR.fullmatch(data[texts[1].content : stop]) is not None
