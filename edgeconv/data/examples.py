"""tf.train.Example records to arrays without TensorFlow, by what is declared of their features.

A feature spec declares them, or features.json of TensorFlow Datasets.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from edgeconv.data.arrays import STRING, Arrays, Items, ended_list, opened, read_json, refuse_larger
from edgeconv.data.checks import DTYPES, limits_of
from edgeconv.data.kinds.images import decoded
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import listed, shortened

if TYPE_CHECKING:
    from edgeconv.data import example_pb2
    from edgeconv.data.records import Records

Array = np.ndarray[Any, Any]

Encoding = Literal["list", "jpeg", "png", "image", "raw", "zlib"]
_FORMATS = {"jpeg": ("JPEG",), "png": ("PNG",), "image": ("JPEG", "PNG")}
_LIST_DTYPES = DTYPES - {"float16"} | {STRING}
# What a string is taken to need, before it is read.
_STRING_BYTES = 64
# Beyond this a feature is read sample by sample, as images are.
_STACKED_BYTES = 1 << 28
_LARGEST_SAMPLE_BYTES = 1 << 30
# A name that no feature can have, because the labels may be wanted as an input as well.
_LABELS = "\0labels"
# What is stored, in messages.
_KINDS = {"bytes_list": "bytes", "float_list": "floats", "int64_list": "ints", None: "nothing"}
# How TensorFlow Datasets calls them.
_TENSOR_ENCODINGS: dict[str, Encoding] = {"none": "list", "bytes": "raw", "zlib": "zlib"}
_IMAGE_ENCODINGS: dict[str, Encoding] = {"": "image", "jpeg": "jpeg", "png": "png"}
_LARGEST_NAMES_BYTES = 16 << 20


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """How one feature is stored, and what comes of it.

    "list": numbers or strings, as `dtype` (`shape`). "raw": little-endian bytes of numbers,
    "zlib": the same, deflated. "jpeg", "png", "image" (either): uint8 (height, width, channels),
    with `channels` None as stored. One size in `shape` may be -1, which is then different from
    sample to sample.
    """

    encoding: Encoding = "list"
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    channels: int | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether all samples have the shape that is declared."""
        return self.encoding not in _FORMATS and -1 not in self.shape


def check_feature(where: str, feature: Feature) -> None:
    """Raises `UsageError` for a feature that declares what cannot be."""
    if feature.encoding in _FORMATS:
        if feature.dtype != "uint8" or feature.shape:
            raise UsageError(
                f"{where}: an image has no shape, and no dtype but uint8",
                hint="remove them; images are resized with --preprocess",
            )
        if feature.channels not in (None, 1, 3, 4):
            raise UsageError(f"{where}: channels = {feature.channels}, not 1, 3 or 4")
        return
    known = _LIST_DTYPES if feature.encoding == "list" else DTYPES
    if feature.dtype not in known:
        raise unknown_name(f"dtype in {where}", feature.dtype, known)
    sizes = [size for size in feature.shape if size != -1]
    if any(size < 1 for size in sizes) or len(feature.shape) - len(sizes) > 1:
        raise UsageError(f"{where}: shape {list(feature.shape)} is impossible")
    if math.prod(sizes) > _LARGEST_SAMPLE_BYTES:
        raise UsageError(f"{where}: shape {list(feature.shape)} is too large")


def read_examples(
    records: Records, features: Mapping[str, Feature], names: Iterable[str], labels: str | None
) -> Arrays:
    """The features `names` by name, and the one that has the labels.

    Those of fixed shape are read at once, the others are `Items`. Raises `InputRefused`,
    naming the record, where one has not what the spec declares.
    """
    chosen = {name: features[name] for name in names}
    by_name: dict[str, Array | Items] = {
        name: _FeatureColumn(records, name, feature) for name, feature in chosen.items()
    }
    at_once = {
        name: feature
        for name, feature in chosen.items()
        if feature.is_fixed and _bytes_of(feature) * len(records) <= _STACKED_BYTES
    }
    if labels is not None:
        at_once[_LABELS] = features[labels]
    for name, feature in at_once.items():
        refuse_larger(
            f"the feature {labels if name == _LABELS else name!r} of {len(records):,} records",
            _bytes_of(feature) * len(records),
            "correct its shape in the feature spec",
        )
    stacked = _stacked(records, at_once, labels) if at_once else {}
    classes = stacked.pop(_LABELS, None)
    return Arrays({**by_name, **stacked}, None if classes is None else _flat(classes))


def _flat(labels: Array) -> Array:
    return labels.reshape(-1) if labels.shape[1:] == (1,) else labels


def _bytes_of(feature: Feature) -> int:
    is_text = feature.dtype == STRING
    each = _STRING_BYTES if is_text else np.dtype(feature.dtype).itemsize
    return math.prod(feature.shape) * each


def _stacked(
    records: Records, features: Mapping[str, Feature], labels: str | None
) -> dict[str, Array]:
    arrays: dict[str, Array] = {
        name: np.empty((len(records), *feature.shape), _room(feature))
        for name, feature in features.items()
    }
    for index in range(len(records)):
        example = _Example.read(records, index)
        for name, feature in features.items():
            stored = labels if name == _LABELS and labels is not None else name
            arrays[name][index] = example.value(stored, feature)
    # An S array would cut what is longer than its first.
    return {
        name: np.array(array.tolist(), "S").reshape(array.shape) if array.dtype == object else array
        for name, array in arrays.items()
    }


def _room(feature: Feature) -> str:
    return "O" if feature.dtype == STRING else feature.dtype


@dataclass(frozen=True)
class _FeatureColumn:
    """One feature of every record, read when it is used."""

    records: Records
    name: str
    feature: Feature

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Array:
        return _Example.read(self.records, index).value(self.name, self.feature)


@dataclass(frozen=True)
class _Example:
    where: str
    stored: Mapping[str, example_pb2.Feature]

    @classmethod
    def read(cls, records: Records, index: int) -> _Example:
        from google.protobuf.message import DecodeError

        from edgeconv.data.example_pb2 import Example

        where = records.where(index)
        try:
            example = Example.FromString(records[index])
        except DecodeError as error:
            raise InputRefused(
                f"{where} is not a tf.train.Example: {error}",
                hint="only records that are tf.train.Example messages are read",
            ) from error
        return cls(where, example.features.feature)

    def value(self, name: str, feature: Feature) -> Array:
        """What the record has for a feature. Raises `InputRefused` if it is something else."""
        if name not in self.stored:
            has = shortened(listed(sorted(self.stored))) or "nothing"
            raise InputRefused(
                f"{self.where} has no feature {name!r}; it has: {has}",
                hint="correct the name in the feature spec, or remove the record",
            )
        what = f"{self.where} feature {name!r},"
        if feature.encoding == "list":
            return _listed(what, self.stored[name], feature)
        data = _only_bytes(what, self.stored[name])
        if feature.encoding in _FORMATS:
            return decoded(data, _FORMATS[feature.encoding], feature.channels, what)
        if feature.encoding == "zlib":
            data = _inflated(what, data, feature)
        return _from_bytes(what, data, feature)


def _only_bytes(what: str, stored: example_pb2.Feature) -> bytes:
    kind, values = _KINDS[stored.WhichOneof("kind")], stored.bytes_list.value
    if kind != "bytes" or len(values) != 1:
        has = f"{len(values)} byte strings" if kind == "bytes" else kind
        raise InputRefused(
            f"{what} should be one byte string, but is {has}", hint="correct the feature spec"
        )
    return values[0]


def _listed(what: str, stored: example_pb2.Feature, feature: Feature) -> Array:
    is_float = feature.dtype.startswith("float")
    is_text = feature.dtype == STRING
    field = "bytes_list" if is_text else "float_list" if is_float else "int64_list"
    stored_as = stored.WhichOneof("kind")
    # An empty list may leave no trace of its type.
    if stored_as not in (field, None):
        kind = _KINDS[stored_as]
        way_out = {
            "bytes": 'encoding = "png", "jpeg" or "raw", or dtype = "string"',
            "floats": 'dtype = "float32"',
            "ints": 'dtype = "int64"',
        }
        raise InputRefused(
            f"{what} holds {kind}, but the spec says {feature.dtype}",
            hint=f"correct the feature spec: {way_out[kind]}",
        )
    values = getattr(stored, field).value
    if is_text:
        return _shaped(what, ended_list(values, what.rstrip(",")), feature)
    array = np.fromiter(values, np.float32 if is_float else np.int64, len(values))
    return _in_dtype(what, _shaped(what, array, feature), np.dtype(feature.dtype))


def _in_dtype(what: str, array: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iub":
        low, high = limits_of(dtype)
        if array.size and (array.min() < low or array.max() > high):
            raise InputRefused(
                f"{what} has values from {array.min()} to {array.max()}, beyond {dtype.name}",
                hint="correct the dtype in the feature spec",
            )
    return array.astype(dtype, copy=False)


def _from_bytes(what: str, data: bytes, feature: Feature) -> Array:
    dtype = np.dtype(feature.dtype)
    if len(data) % dtype.itemsize:
        raise InputRefused(
            f"{what} has {len(data):,} bytes, not a multiple of {dtype.itemsize} for {dtype.name}",
            hint="correct the dtype in the feature spec",
        )
    array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    return _shaped(what, array, feature)


def _shaped(what: str, array: Array, feature: Feature) -> Array:
    fixed = math.prod(size for size in feature.shape if size != -1)
    if array.size % fixed if -1 in feature.shape else array.size != fixed:
        needed = f"a multiple of {fixed}" if -1 in feature.shape else str(fixed)
        raise InputRefused(
            f"{what} has {array.size} values, and shape {list(feature.shape)} takes {needed}",
            hint="correct the shape in the feature spec; variable = true if it differs",
        )
    return array.reshape(feature.shape)


def _inflated(what: str, data: bytes, feature: Feature) -> bytes:
    most = _LARGEST_SAMPLE_BYTES if -1 in feature.shape else _bytes_of(feature)
    inflater = zlib.decompressobj()
    try:
        # One more, so that too much is seen.
        return inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise InputRefused(f"{what} is damaged: {error}") from error


class _Shape(msgspec.Struct, frozen=True):
    dimensions: tuple[int, ...] = ()


class _TensorInfo(msgspec.Struct, frozen=True, rename="camel"):
    dtype: str = ""
    shape: _Shape = _Shape()
    encoding: str = "none"
    file_format: str = ""


class _ImageInfo(msgspec.Struct, frozen=True, rename="camel"):
    dtype: str = "uint8"
    shape: _Shape = _Shape()
    encoding_format: str = ""


class _ClassLabel(msgspec.Struct, frozen=True, rename="camel"):
    num_classes: int = 0


class _FeatureInfo(msgspec.Struct, frozen=True, rename="camel"):
    python_class_name: str = ""
    features_dict: _Dict | None = None
    tensor: _TensorInfo | None = None
    audio: _TensorInfo | None = None
    bounding_box: _TensorInfo | None = None
    image: _ImageInfo | None = None
    class_label: _ClassLabel | None = None


class _Dict(msgspec.Struct, frozen=True):
    features: dict[str, _FeatureInfo] = {}


@dataclass(frozen=True)
class DeclaredFeatures:
    """The features of a data set by name, `outer/inner` for one inside another.

    `refused` are those that are not read, with the reason. `class_names` is by the name of
    a ClassLabel, where its names are known.
    """

    features: dict[str, Feature] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    class_labels: list[str] = field(default_factory=list)
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Every feature."""
        return [*self.features, *self.refused]


def read_features(directory: Path) -> DeclaredFeatures:
    """What features.json in `directory` declares. Raises `InputRefused`."""
    path = directory / "features.json"
    root = read_json(path, _FeatureInfo)
    if root.features_dict is None:
        raise InputRefused(f"{path} declares no dictionary of features")
    declared = DeclaredFeatures()
    try:
        _collect(declared, directory, (), root.features_dict)
    except RecursionError as error:
        raise InputRefused(f"{path} is damaged: its features are nested too deeply") from error
    return declared


def _collect(
    declared: DeclaredFeatures, directory: Path, outer: tuple[str, ...], inner: _Dict
) -> None:
    for key, node in inner.features.items():
        parts = (*outer, key)
        name = "/".join(parts)
        if node.features_dict is not None:
            _collect(declared, directory, parts, node.features_dict)
            continue
        feature = _feature(node)
        reason = feature if isinstance(feature, str) else _impossible(name, feature)
        if reason or isinstance(feature, str):
            declared.refused[name] = reason
            continue
        declared.features[name] = feature
        if node.class_label is not None:
            declared.class_labels.append(name)
            names = _class_names(directory, parts, node.class_label.num_classes)
            if names:
                declared.class_names[name] = names


def _feature(node: _FeatureInfo) -> Feature | str:
    """How a feature is stored, or why it is not read."""
    if node.class_label is not None:
        return Feature(dtype="int64")
    tensor = node.tensor or node.audio or node.bounding_box
    if tensor is not None:
        return _of_tensor(tensor)
    if node.image is not None:
        return _of_image(node.image)
    kind = node.python_class_name.rpartition(".")[2] or "unknown"
    return f"it is of the type {kind}, and not an image, a tensor of numbers or a ClassLabel"


def _of_tensor(tensor: _TensorInfo) -> Feature | str:
    encoding = _TENSOR_ENCODINGS.get(tensor.encoding.lower() or "none")
    if encoding is None or tensor.file_format:
        return f"it is stored as {tensor.file_format or tensor.encoding}"
    return Feature(encoding=encoding, dtype=tensor.dtype, shape=tensor.shape.dimensions)


def _of_image(image: _ImageInfo) -> Feature | str:
    encoding = _IMAGE_ENCODINGS.get(image.encoding_format.lower())
    if encoding is None or image.dtype != "uint8":
        return f"it is an image of {image.dtype} stored as {image.encoding_format or 'png'}"
    sizes = image.shape.dimensions
    channels = sizes[2] if len(sizes) == 3 and sizes[2] > 0 else None
    return Feature(encoding=encoding, channels=channels)


def _impossible(name: str, feature: Feature) -> str:
    try:
        check_feature(name, feature)
    except UsageError as error:
        return error.message
    return ""


def _class_names(directory: Path, parts: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The names of a ClassLabel's classes, none where they are not all there."""
    path = directory / ("-".join(part.replace("/", ".") for part in parts) + ".labels.txt")
    if not path.is_file():
        return ()
    with opened(path) as (file, size_bytes):
        if size_bytes > _LARGEST_NAMES_BYTES:
            raise InputRefused(f"{path} has {size_bytes:,} bytes and is not a list of names")
        text = file.read().decode("utf-8", "replace")
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    return names if len(names) == count else ()
