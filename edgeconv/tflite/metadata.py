"""What a model's inputs and outputs mean, in the file: the standard TFLite Metadata format.

Two parts of a .tflite carry it. A flatbuffer of its own (schema 1.5.0, identifier M001) is in
the buffer that the entry TFLITE_METADATA names, and files such as labels are in a ZIP archive that
stands after the model. Source: the schema metadata_schema.fbs and the reader of the PyPI package
tflite-support 0.4.4. Only what all versions of that schema have is written, so that the oldest
reader understands all of it.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edgeconv.tflite.flat_table import BrokenFlatbuffer, root
from edgeconv.tflite.flatbuffer import parse, serialize, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_edge_litert.schema_py_generated import ModelT

FILE_IDENTIFIER = b"M001"
# The version that the identifier began with; no field that is written came later.
MIN_PARSER_VERSION = "1.0.0"
_ENTRY = "TFLITE_METADATA"
_WHERE = "the model"
# Fields of the tables Model and ModelMetadata, by their place in the schemas.
_BUFFERS, _METADATA, _LICENSE = 4, 6, 5
_FEATURE, _IMAGE = 1, 2
_NORMALIZATION = 1
_AXIS_LABELS = 2
_COLORS = {"": 0, "rgb": 1, "gray": 2}
# No ZIP holds an earlier date, and a later one would be different every time.
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
    """What is said of one input or output.

    `mean` and `std` are how a value becomes the model's: (x - mean) / std, one for all
    channels or one for each; () where nothing is said. `labels` is the name of the file that
    names the values of the last axis, "" for none.
    """

    name: str
    description: str = ""
    image: ImageMetadata | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    labels: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """What is said of a model; inputs and outputs in the order of its first graph."""

    name: str
    description: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class GraphNames(NamedTuple):
    """The names of the first graph's inputs and outputs, in its order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def graph_names(data: bytes) -> GraphNames:
    """The names as the first signature of the first graph has them, else those of the tensors.

    Raises `InputRefused` for bytes that are no model.
    """
    model = parse(data, where=_WHERE)
    graph = model.subgraphs[0]
    signature = next((s for s in model.signatureDefs or () if s.subgraphIndex == 0), None)
    return GraphNames(
        _names(model, graph.inputs, signature.inputs if signature else ()),
        _names(model, graph.outputs, signature.outputs if signature else ()),
    )


def _names(model: ModelT, indices: list[int], maps: Any) -> tuple[str, ...]:
    named = {one.tensorIndex: text(one.name) for one in maps}
    tensors = model.subgraphs[0].tensors
    return tuple(named.get(index, text(tensors[index].name)) for index in indices)


def license_of(data: bytes) -> str:
    """The license that a model's metadata names, its first line; "" where it names none."""
    try:
        model = root(memoryview(data))
        buffers = list(model.tables(_BUFFERS))
        for entry in model.tables(_METADATA):
            if entry.text(0) == _ENTRY:
                packed = buffers[entry.int32(1)].bytes(0)
                said = root(memoryview(packed)).text(_LICENSE) if packed else ""
                return next(iter(said.strip().splitlines()), "")
    except (BrokenFlatbuffer, IndexError):
        # What cannot be read says nothing; the model itself was read by others.
        return ""
    return ""


def with_metadata(data: bytes, metadata: ModelMetadata, files: Mapping[str, bytes]) -> bytes:
    """The same model with this metadata, in place of any that it has, and `files` after it.

    `files` are those that `metadata` names, by name. Equal arguments give equal bytes. Raises
    `InputRefused` for bytes that are no model.
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
    return _followed_by(serialize(model), files)


def _followed_by(model: bytes, files: Mapping[str, bytes]) -> bytes:
    """The model and a ZIP archive; not compressed, which is all that some readers take."""
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
        {2: [_tensor(one) for one in metadata.inputs], 3: [_tensor(o) for o in metadata.outputs]},
    )
    root = _MetadataTable(
        8,
        {0: metadata.name, 1: metadata.description, 3: [subgraph], 7: MIN_PARSER_VERSION},
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(_written(builder, root), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


class _Scalar(NamedTuple):
    """A number in a table; `kind` as the builder's methods call it."""

    kind: Literal["Int8", "Uint8", "Uint32"]
    value: int


class _MetadataTable(NamedTuple):
    """A table of the schema with so many fields, and those that are set, by their number."""

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


def _written(builder: Any, value: Any) -> int:
    """Write a text, a vector or a table, with what is in it; returns its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value.encode("utf-8", "replace").decode()))
    if not isinstance(value, _MetadataTable):
        return _written_vector(builder, value)
    # What a table refers to stands outside of it, and is written before it.
    offsets = {
        field: _written(builder, one)
        for field, one in value.values.items()
        if not isinstance(one, _Scalar) and (isinstance(one, _MetadataTable) or len(one))
    }
    builder.StartObject(value.fields)
    for field, one in value.values.items():
        if isinstance(one, _Scalar):
            getattr(builder, f"Prepend{one.kind}Slot")(field, one.value, 0)
        elif field in offsets:
            builder.PrependUOffsetTRelativeSlot(field, offsets[field], 0)
    return int(builder.EndObject())


def _written_vector(builder: Any, values: Any) -> int:
    if isinstance(values[0], float):
        builder.StartVector(4, len(values), 4)
        for one in reversed(values):
            builder.PrependFloat32(one)
        return int(builder.EndVector())
    offsets = [_written(builder, one) for one in values]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
