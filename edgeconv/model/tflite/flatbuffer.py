"""A .tflite as Python objects and back, completely checked.

The objects are of LiteRT's schema (`ModelT` and so on). A file may have weights and options
outside of the flatbuffer, at an offset in the file. `parse` moves them into the objects, so that
`serialize` writes them.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.structure import BrokenFlatbuffer, structure
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import (
        ModelT,
        OperatorT,
        SignatureDefT,
        SubGraphT,
        TensorT,
    )

FILE_IDENTIFIER = b"TFL3"
MOST_FLATBUFFER_BYTES = 2**31 - 2**24
_SCHEMA_VERSION = 3
_LAST_DEPRECATED_CODE = 127
# The runtime maps weights from the file, and its kernels need them aligned.
_WEIGHT_ALIGNMENT_BYTES = 16
# Larger models would stay in memory with the bytes that they were read from.
_MOST_BYTES_KEPT = 2**25
# Marks weights outside of the flatbuffer; removed once they are inside.
_OUTSIDE_MARK = b"buffer_location"


def parse(data: bytes, *, where: str) -> ModelT:
    """The model in `data`, with every index in range and every weight inside.

    Missing vectors of tensors, operators, inputs and outputs are empty lists. Each operator's code
    is in `builtinCode`, even if the file has the older field only. Raises `InputRefused`, which
    names the file as `where`, for malformed bytes.
    """
    if len(data) < 8 or data[4:8] != FILE_IDENTIFIER:
        what = "is empty" if not data else "is not a .tflite file: its identifier is missing"
        raise InputRefused(f"{where} {what}", hint="give a file that a TFLite converter wrote")
    _refuse_structure(data, where)
    from ai_edge_litert.schema_py_generated import ModelT

    try:
        model = ModelT.InitFromPackedBuf(data, 0)
    # All that the generated code raises for malformed bytes, as fuzzing shows.
    except (struct.error, TypeError, ValueError) as error:
        raise malformed(where, str(error)) from error
    _fill_absent_vectors(model)
    _bring_up_to_date(model)
    _check_indices(model, where)
    _pull_inside(model, data, where)
    return model


def read(data: bytes, *, where: str) -> ModelT:
    """The model in `data` as `parse` gives it, kept for the next reader: it must not be changed.

    Every stage of a conversion looks at each file. Raises as `parse`.
    """
    if len(data) > _MOST_BYTES_KEPT:
        return parse(data, where=where)
    try:
        return _parse_once(data)
    except InputRefused:
        return parse(data, where=where)


@lru_cache(maxsize=8)
def _parse_once(data: bytes) -> ModelT:
    return parse(data, where="the model")


def is_outdated(data: bytes) -> bool:
    """Whether the file has the form from before TensorFlow 2.4; `parse` and `serialize` update it.

    litert-quantizer reads every operator of such a file as ADD.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data, 0)
    codes = (model.OperatorCodes(index) for index in range(model.OperatorCodesLength()))
    old_codes = any(code.BuiltinCode() < code.DeprecatedBuiltinCode() for code in codes)
    return old_codes or not model.Version()


def has_weights_outside(data: bytes) -> bool:
    """Whether the file has weights or options outside of the flatbuffer.

    Runtimes that do not know the place take such weights for tensors that are computed: TensorFlow
    Lite for Microcontrollers answers something else, without an error.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data, 0)
    buffers = (model.Buffers(index) for index in range(model.BuffersLength()))
    return any(buffer.Offset() > 1 for buffer in buffers)


def _refuse_structure(data: bytes, where: str) -> None:
    """Raise `InputRefused` for a file whose objects would take all memory or time."""
    try:
        problems = structure(data).problems
    except BrokenFlatbuffer as error:
        raise malformed(where, str(error)) from error
    if problems:
        first = problems[0]
        raise InputRefused(
            f"{where} has {first.what}: it {first.why} ({first.where})",
            hint="give a file that a TFLite converter wrote",
        )


def serialize(model: ModelT) -> bytes:
    """The model as a .tflite file, all inside the flatbuffer; equal models give equal bytes.

    Raises `InputRefused` for a model of more than 2 GiB, the limit of a flatbuffer.
    """
    import flatbuffers

    weights_bytes = sum(len(b.data) for b in model.buffers if b.data is not None)
    if weights_bytes > MOST_FLATBUFFER_BYTES:
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
    """A name in the file as text; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""


@cache
def type_names() -> dict[int, str]:
    """Tensor type codes to numpy names, or names such as "int4" where numpy has none."""
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
    """Whether the operator is not a builtin one."""
    code = model.operatorCodes[operator.opcodeIndex]
    return _builtin_names().get(code.builtinCode) == "CUSTOM"


def operators_of(model: ModelT) -> Iterator[tuple[SubGraphT, OperatorT]]:
    """Every operator with its graph, in the order of the file."""
    return ((graph, operator) for graph in model.subgraphs for operator in graph.operators)


def graphs_of(model: ModelT, key: str) -> Iterator[tuple[SignatureDefT, SubGraphT]]:
    """Each signature of that key, with its graph."""
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) == key:
            yield signature, model.subgraphs[signature.subgraphIndex]


def is_constant(model: ModelT, tensor: TensorT) -> bool:
    """Whether the tensor's values are in the file."""
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def entry_subgraphs(model: ModelT) -> list[int]:
    """Indices of the subgraphs a caller can run: the signatures' subgraphs, else the first."""
    return sorted({s.subgraphIndex for s in model.signatureDefs or ()}) or [0]


class _AlignedBuffer:
    """Packs a buffer's data at the schema's alignment, which the generated code does not."""

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
    """Set each operator code as converters do since TensorFlow 2.4, by the schema's rule.

    Older files have the deprecated field only, whose maximum is 127, and may lack the version.
    """
    model.version = model.version or _SCHEMA_VERSION
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
        code.deprecatedBuiltinCode = min(code.builtinCode, _LAST_DEPRECATED_CODE)


def _as_list(vector: Any) -> list[int]:
    return [] if vector is None else [int(index) for index in vector]


def _check_indices(model: ModelT, where: str) -> None:
    if not model.subgraphs:
        raise malformed(where, "it has no graph")
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
        # -1 is a missing optional input or output.
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
    """Raise `InputRefused` for inputs that are weights: setting them crashes a runtime."""
    for index in inputs:
        if is_constant(model, graph.tensors[index]):
            name = text(graph.tensors[index].name)
            raise malformed(where, f"the input {name!r} is a constant")


def _within(indices: Iterable[int], count: int, what: str, where: str) -> None:
    for index in indices:
        if not 0 <= index < count:
            raise malformed(where, f"{what} {index} does not exist; there are {count}")


def _pull_inside(model: ModelT, data: bytes, where: str) -> None:
    for buffer in model.buffers:
        # As in the runtime, data inside wins, and an offset of 1 only marks an unfinished file.
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
