"""A .tflite as Python objects and back, with nothing in it left unchecked.

The objects are those of the schema that ships with LiteRT (`ModelT` and so on). A file
may keep weights and options outside the flatbuffer proper, at an offset into the file;
`parse` pulls them in, so whoever edits the objects and calls `serialize` keeps them.
"""

from __future__ import annotations

import copy
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.tflite.flat_table import BrokenFlatbuffer
from edgeconv.tflite.structure import structure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

FILE_IDENTIFIER = b"TFL3"
_MAX_FLATBUFFER_BYTES = 2**31 - 2**24
_SCHEMA_VERSION = 3
_LAST_DEPRECATED_CODE = 127
# The runtime maps weights straight from the file, and its kernels want them aligned.
_WEIGHT_ALIGNMENT_BYTES = 16
# Says that weights lie outside the flatbuffer, which is no longer so once they are in.
_OUTSIDE_MARK = b"buffer_location"


def parse(data: bytes, *, where: str) -> ModelT:
    """The model in `data`, every index in range and every weight inside it.

    Vectors that the file leaves out are empty lists for tensors, operators, inputs and
    outputs. Each operator's code is in `builtinCode`, whichever of its two fields the file has
    it in. `where` names the file in the `InputRefused` that malformed bytes raise.
    """
    if len(data) < 8 or data[4:8] != FILE_IDENTIFIER:
        what = "is empty" if not data else "is no .tflite file: its identifier is missing"
        raise InputRefused(f"{where} {what}", hint="give the file that a TFLite converter wrote")
    _refuse_structure(data, where)
    from ai_edge_litert.schema_py_generated import ModelT

    try:
        model = ModelT.InitFromPackedBuf(data, 0)
    # All that the generated code raises on malformed bytes, found by mutating files.
    except (struct.error, TypeError, ValueError) as error:
        raise malformed(where, str(error)) from error
    _fill_absent_vectors(model)
    _bring_up_to_date(model)
    _check_indices(model, where)
    _pull_inside(model, data, where)
    return model


def is_outdated(data: bytes) -> bool:
    """Whether a model that `parse` takes says less than it must today; serialize what it gives.

    ai-edge-quantizer, for one, takes every operator of a file from before TensorFlow 2.4 for ADD.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data, 0)
    codes = (model.OperatorCodes(index) for index in range(model.OperatorCodesLength()))
    old_codes = any(code.BuiltinCode() < code.DeprecatedBuiltinCode() for code in codes)
    return old_codes or not model.Version()


def _refuse_structure(data: bytes, where: str) -> None:
    """Raise `InputRefused` for a file that would take all memory or time to make objects of."""
    try:
        problems = structure(data).problems
    except BrokenFlatbuffer as error:
        raise malformed(where, str(error)) from error
    if problems:
        first = problems[0]
        raise InputRefused(
            f"{where} has {first.what}: it {first.why} ({first.where})",
            hint="give the file that a TFLite converter wrote",
        )


def serialize(model: ModelT) -> bytes:
    """The model as a .tflite file, all of it inside the flatbuffer; equal models, equal bytes.

    Raises `InputRefused` for a model beyond the 2 GiB a flatbuffer can hold.
    """
    import flatbuffers

    weights_bytes = sum(len(b.data) for b in model.buffers if b.data is not None)
    if weights_bytes > _MAX_FLATBUFFER_BYTES:
        raise InputRefused(
            f"cannot edit a model of {weights_bytes} bytes: flatbuffers end at 2 GiB"
        )
    packable = copy.copy(model)
    packable.buffers = [_AlignedBuffer(buffer.data) for buffer in model.buffers]
    builder = flatbuffers.Builder(weights_bytes + 2**16)
    builder.Finish(packable.Pack(builder), file_identifier=FILE_IDENTIFIER)
    return bytes(builder.Output())


def malformed(where: str, what: str) -> InputRefused:
    """The refusal of a .tflite whose content makes no sense."""
    return InputRefused(
        f"{where} is a malformed .tflite file: {what}",
        hint="copy or convert it again; it may be truncated",
    )


def text(raw: bytes | str | None) -> str:
    """A name in the file as text; bytes that are no UTF-8 are replaced."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""


@cache
def type_names() -> dict[int, str]:
    """Tensor type codes to numpy names ("int4" and the like where numpy has none)."""
    from ai_edge_litert.schema_py_generated import TensorType

    return {code: name.lower() for name, code in vars(TensorType).items() if name[0] != "_"}


@cache
def _builtin_names() -> dict[int, str]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    return {code: name for name, code in vars(BuiltinOperator).items() if name[0] != "_"}


def operator_name(model: ModelT, operator: OperatorT) -> str:
    """The operator's builtin name, such as "CONV_2D", or its custom code."""
    code = model.operatorCodes[operator.opcodeIndex]
    name = _builtin_names().get(code.builtinCode, f"BUILTIN_{code.builtinCode}")
    return (text(code.customCode) or name) if name == "CUSTOM" else name


def is_custom(model: ModelT, operator: OperatorT) -> bool:
    """Whether the operator is none of the builtin ones."""
    code = model.operatorCodes[operator.opcodeIndex]
    return _builtin_names().get(code.builtinCode) == "CUSTOM"


def is_constant(model: ModelT, tensor: TensorT) -> bool:
    """Whether the tensor's values are in the file."""
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def entry_subgraphs(model: ModelT) -> list[int]:
    """Indices of the subgraphs a caller can run: those of signatures, else the first."""
    return sorted({s.subgraphIndex for s in model.signatureDefs or ()}) or [0]


class _AlignedBuffer:
    """Packs a buffer's data at the alignment the schema asks for; its own code does not."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def Pack(self, builder: Any) -> int:  # noqa: N802 (the name that generated code calls)
        from ai_edge_litert import schema_py_generated as schema

        vector = None if self._data is None else self._pack_data(builder)
        schema.BufferStart(builder)
        if vector is not None:
            schema.BufferAddData(builder, vector)
        return int(schema.BufferEnd(builder))

    def _pack_data(self, builder: Any) -> int:
        payload = bytes(self._data)
        builder.StartVector(1, len(payload), _WEIGHT_ALIGNMENT_BYTES)
        builder.head -= len(payload)
        builder.Bytes[builder.head : builder.head + len(payload)] = payload
        return int(builder.EndVector())


def _fill_absent_vectors(model: ModelT) -> None:
    model.buffers = model.buffers or []
    model.operatorCodes = model.operatorCodes or []
    model.subgraphs = model.subgraphs or []
    for graph in model.subgraphs:
        graph.tensors = graph.tensors or []
        graph.operators = graph.operators or []
        for owner in (graph, *graph.operators):
            owner.inputs = _as_list(owner.inputs)
            owner.outputs = _as_list(owner.outputs)
    for signature in model.signatureDefs or ():
        signature.inputs = signature.inputs or []
        signature.outputs = signature.outputs or []


def _bring_up_to_date(model: ModelT) -> None:
    """Put each operator code where converters write it since TensorFlow 2.4, by the schema's rule.

    Files from before have the deprecated field only, which holds 127 at most. A graph in the
    form of schema version 3 is of that version, whether or not the file says so.
    """
    model.version = model.version or _SCHEMA_VERSION
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
        code.deprecatedBuiltinCode = min(code.builtinCode, _LAST_DEPRECATED_CODE)


def _as_list(vector: Any) -> list[int]:
    return [] if vector is None else [int(index) for index in vector]


def _check_indices(model: ModelT, where: str) -> None:
    if not model.subgraphs:
        raise malformed(where, "it holds no graph")
    _within([m.buffer for m in model.metadata or ()], len(model.buffers), "buffer", where)
    for graph in model.subgraphs:
        _check_graph(model, graph, where)
        _refuse_constants(model, graph, graph.inputs, where)
    for signature in model.signatureDefs or ():
        _within([signature.subgraphIndex], len(model.subgraphs), "subgraph", where)
        graph = model.subgraphs[signature.subgraphIndex]
        maps = (*signature.inputs, *signature.outputs)
        _within([m.tensorIndex for m in maps], len(graph.tensors), "tensor", where)
        _refuse_constants(model, graph, [m.tensorIndex for m in signature.inputs], where)


def _check_graph(model: ModelT, graph: SubGraphT, where: str) -> None:
    tensors = len(graph.tensors)
    _within([*graph.inputs, *graph.outputs], tensors, "tensor", where)
    for operator in graph.operators:
        _within([operator.opcodeIndex], len(model.operatorCodes), "operator code", where)
        # -1 stands for an optional input or output that is not there.
        used = [i for i in (*operator.inputs, *operator.outputs) if i != -1]
        _within(used, tensors, "tensor", where)
    for tensor in graph.tensors:
        _within([tensor.buffer], len(model.buffers), "buffer", where)
        if tensor.type not in type_names():
            raise malformed(where, f"tensor type {tensor.type} is unknown")
        if tensor.externalBuffer:
            raise InputRefused(
                f"{where} keeps weights in other files, which edgeconv does not read",
                hint="convert the model to a single .tflite file",
            )


def _refuse_constants(model: ModelT, graph: SubGraphT, inputs: Iterable[int], where: str) -> None:
    """Raise `InputRefused` for inputs that are weights: a runtime crashes when they are set."""
    for index in inputs:
        if is_constant(model, graph.tensors[index]):
            name = text(graph.tensors[index].name)
            raise malformed(where, f"the input {name!r} is a constant")


def _within(indices: Iterable[int], count: int, what: str, where: str) -> None:
    for index in indices:
        if not 0 <= index < count:
            raise malformed(where, f"{what} {index} is named, and there are {count}")


def _pull_inside(model: ModelT, data: bytes, where: str) -> None:
    for buffer in model.buffers:
        # Data inside wins, and an offset of 1 only marks a file in the making: both as
        # in the runtime.
        if (buffer.data is None or not len(buffer.data)) and buffer.offset > 1:
            buffer.data = _outside(data, buffer.offset, buffer.size, where)
        buffer.offset = buffer.size = 0
    for operator in (o for graph in model.subgraphs for o in graph.operators):
        offset, size = operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
        if offset > 1:
            operator.customOptions = _outside(data, offset, size, where)
        operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
    if model.metadata:
        model.metadata = [m for m in model.metadata if m.name != _OUTSIDE_MARK]


def _outside(data: bytes, offset: int, size: int, where: str) -> Any:
    import numpy as np

    if offset + size > len(data):
        raise malformed(where, f"weights end at byte {offset + size}, and the file at {len(data)}")
    return np.frombuffer(data, np.uint8, count=size, offset=offset)
