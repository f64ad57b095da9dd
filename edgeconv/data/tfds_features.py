"""features.json of TensorFlow Datasets: which features can be read, and how each is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.arrays import opened
from edgeconv.data.examples import Encoding, Feature, check_feature
from edgeconv.data.tfds_layout import read_json
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_TENSOR_ENCODINGS: dict[str, Encoding] = {"none": "list", "bytes": "raw", "zlib": "zlib"}
_IMAGE_ENCODINGS: dict[str, Encoding] = {"": "image", "jpeg": "jpeg", "png": "png"}

_LARGEST_NAMES_BYTES = 16 << 20


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
