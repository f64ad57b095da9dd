"""The meaning of a model's inputs and outputs in the standard TFLite Metadata format.

A .tflite has it in two parts: another flatbuffer (schema 1.5.0, identifier M001) in the buffer that
the entry TFLITE_METADATA names, and files such as labels in a ZIP archive after the model. Source:
metadata_schema.fbs and the reader of the PyPI package tflite-support 0.4.4. Only fields of all
versions of that schema are written, for the oldest reader.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edgeconv.model.tflite.flatbuffer import parse, serialize, text

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

FILE_IDENTIFIER = b"M001"
# The first version with the identifier; all fields written here are as old.
MIN_PARSER_VERSION = "1.0.0"
_ENTRY = "TFLITE_METADATA"
_WHERE = "the model"
_FEATURE, _IMAGE = 1, 2
_NORMALIZATION = 1
_AXIS_LABELS = 2
_COLORS = {"": 0, "rgb": 1, "gray": 2}
# The earliest date of a ZIP; the present one would differ every time.
_DATE = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o644 << 16
_UNIX = 3


@dataclass(frozen=True, kw_only=True)
class ImageMetadata:
    """A tensor that is an image of `height` and `width` in pixels."""

    color: Literal["", "rgb", "gray"]
    height: int
    width: int


@dataclass(frozen=True, kw_only=True)
class TensorMetadata:
    """The metadata of one input or output.

    A value becomes the model's by (x - mean) / std; `mean` and `std` are one number for all
    channels or one for each, () for none. `labels` is the name of the file with the names of the
    last axis, "" for none.
    """

    name: str
    description: str = ""
    image: ImageMetadata | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    labels: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """The metadata of a model; inputs and outputs in the order of its first graph."""

    name: str
    description: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


def graph_names(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the first graph's inputs, and of its outputs, in its order.

    They are as the first signature of the graph has them, else the tensors' names.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where=_WHERE)
    graph = model.subgraphs[0]
    signature = next((s for s in model.signatureDefs or () if s.subgraphIndex == 0), None)
    return (
        _names(model, graph.inputs, signature.inputs if signature else ()),
        _names(model, graph.outputs, signature.outputs if signature else ()),
    )


def _names(model: ModelT, indices: list[int], maps: Any) -> tuple[str, ...]:
    named = {tensor_map.tensorIndex: text(tensor_map.name) for tensor_map in maps}
    tensors = model.subgraphs[0].tensors
    return tuple(named.get(index, text(tensors[index].name)) for index in indices)


def with_metadata(data: bytes, metadata: ModelMetadata, files: Mapping[str, bytes]) -> bytes:
    """The same model with this metadata, in place of any that it has, and `files` after it.

    `files` has the files named in `metadata`. Equal arguments give equal bytes. Raises
    `InputRefused` for bytes that are not a model.
    """
    import numpy as np
    from ai_edge_litert.schema_py_generated import BufferT, MetadataT

    model = parse(data, where=_WHERE)
    packed = BufferT(data=np.frombuffer(metadata_flatbuffer(metadata), np.uint8))
    entry = next((m for m in model.metadata or () if text(m.name) == _ENTRY), None)
    if entry is None:
        model.buffers.append(packed)
        entry = MetadataT(name=_ENTRY, buffer=len(model.buffers) - 1)
        model.metadata = [*(model.metadata or ()), entry]
    else:
        model.buffers[entry.buffer] = packed
    return _append_files(serialize(model), files)


def _append_files(model: bytes, files: Mapping[str, bytes]) -> bytes:
    """The model and an uncompressed ZIP archive, as some readers read no other."""
    if not files:
        return model
    whole = io.BytesIO(model)
    with zipfile.ZipFile(whole, "a", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=_DATE)
            entry.create_system, entry.external_attr = _UNIX, _PLAIN_FILE
            archive.writestr(entry, content)
    return whole.getvalue()


def metadata_flatbuffer(metadata: ModelMetadata) -> bytes:
    """The metadata as the flatbuffer that the schema describes."""
    import flatbuffers

    subgraph = _MetadataTable(
        10,
        {
            2: [_tensor(tensor) for tensor in metadata.inputs],
            3: [_tensor(o) for o in metadata.outputs],
        },
    )
    root = _MetadataTable(
        8, {0: metadata.name, 1: metadata.description, 3: [subgraph], 7: MIN_PARSER_VERSION}
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, root), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


class _Scalar(NamedTuple):
    """A number in a table; `kind` as the builder's methods call it."""

    kind: Literal["Int8", "Uint8", "Uint32"]
    value: int


class _MetadataTable(NamedTuple):
    """A table of the schema: its number of fields, and the values that are set, by number."""

    fields: int
    values: Mapping[int, Any]


def _tensor(tensor: TensorMetadata) -> _MetadataTable:
    normalization = _MetadataTable(2, {0: tensor.mean, 1: tensor.std})
    units = [_MetadataTable(2, {0: _Scalar("Uint8", _NORMALIZATION), 1: normalization})]
    labels = _MetadataTable(5, {0: tensor.labels, 2: _Scalar("Int8", _AXIS_LABELS)})
    return _MetadataTable(
        7,
        {
            0: tensor.name,
            1: tensor.description,
            3: _content(tensor.image),
            4: units if tensor.mean else (),
            6: [labels] if tensor.labels else (),
        },
    )


def _content(image: ImageMetadata | None) -> _MetadataTable:
    if image is None:
        return _MetadataTable(3, {0: _Scalar("Uint8", _FEATURE), 1: _MetadataTable(0, {})})
    size = _MetadataTable(
        2, {0: _Scalar("Uint32", image.width), 1: _Scalar("Uint32", image.height)}
    )
    shown = _MetadataTable(2, {0: _Scalar("Int8", _COLORS[image.color]), 1: size})
    return _MetadataTable(3, {0: _Scalar("Uint8", _IMAGE), 1: shown})


def _write(builder: Any, value: Any) -> int:
    """Write a text, a vector or a table, with what is in it; returns its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value.encode("utf-8", "replace").decode()))
    if not isinstance(value, _MetadataTable):
        return _write_vector(builder, value)
    # A table refers to values outside of it, which are written before it.
    offsets = {
        field: _write(builder, part)
        for field, part in value.values.items()
        if not isinstance(part, _Scalar) and (isinstance(part, _MetadataTable) or len(part))
    }
    builder.StartObject(value.fields)
    for field, part in value.values.items():
        if isinstance(part, _Scalar):
            getattr(builder, f"Prepend{part.kind}Slot")(field, part.value, 0)
        elif field in offsets:
            builder.PrependUOffsetTRelativeSlot(field, offsets[field], 0)
    return int(builder.EndObject())


def _write_vector(builder: Any, values: Any) -> int:
    if isinstance(values[0], float):
        builder.StartVector(4, len(values), 4)
        for part in reversed(values):
            builder.PrependFloat32(part)
        return int(builder.EndVector())
    offsets = [_write(builder, part) for part in values]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
