"""Constants that need less space: tables in one form, and one number for many equal ones."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Literal

from edgeconv.model.tflite.biases import SLOTS
from edgeconv.model.tflite.edit import (
    OwnConstants,
    code_of,
    empty_buffer,
    require_version,
    store_values,
)
from edgeconv.model.tflite.flatbuffer import (
    MOST_FLATBUFFER_BYTES,
    is_constant,
    operator_name,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of, use_of
from edgeconv.model.tflite.rewriting.editor import GraphEditor

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

TableType = Literal["int8", "float16"]
_LEAST_NUMBERS = 1024
# What is filled when the model runs takes memory then.
_LEAST_FILLED = 16 * 1024
# A float16 has 11 bits, of which the first is not stored.
_HALF_STEP = 2.0**-10
_SMALL = {"int8": "i1", "float16": "<f2"}
_STORED = {**_SMALL, "float32": "<f4"}
_ELEMENTWISE = frozenset({"ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "SQUARED_DIFFERENCE", "SUB"})


def with_tables_once(data: bytes, kept: Collection[str] = ()) -> bytes:
    """The same model, in which readers of a float copy of small weights get these unpacked.

    litert-quantizer leaves a table that a GATHER reads in float, and stores it again for a layer
    that multiplies by it. Operators with an output among `kept` keep their copy. `data` itself
    comes back without such copies. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    copies = [tuple(_copies(model, graph, kept)) for graph in model.subgraphs]
    if not any(copies):
        return data
    model = parse(data, where="the model")
    for graph, pairs in zip(model.subgraphs, copies, strict=True):
        for small, index in pairs:
            _unpack(model, graph, small, index)
    return serialize(model)


def _copies(model: ModelT, graph: SubGraphT, kept: Collection[str]) -> Iterator[tuple[int, int]]:
    """Small weights with each float constant that is a copy of them, by their numbers."""
    stored = [
        (index, type_of(tensor))
        for index, tensor in enumerate(graph.tensors)
        if is_constant(model, tensor) and tensor.sparsity is None
    ]
    small = [index for index, kind in stored if kind in _SMALL]
    keeping = {
        index
        for operator in graph.operators
        if any(text(graph.tensors[each].name) in kept for each in operator.outputs)
        for index in operator.inputs
    }
    for index, kind in stored:
        if kind == "float32" and index not in keeping and index not in graph.outputs:
            tensor = graph.tensors[index]
            copied = (each for each in small if _is_copy(model, graph.tensors[each], tensor))
            yield from ((each, index) for each in itertools.islice(copied, 1))


def _is_copy(model: ModelT, small: TensorT, tensor: TensorT) -> bool:
    """Whether small weights stand for the numbers of another constant, in float32 or int8."""
    import numpy as np

    if shape_of(small) != shape_of(tensor):
        return False
    values, coarser = _numbers(model, tensor)
    if values.size < _LEAST_NUMBERS:
        return False
    numbers, steps = _numbers(model, small)
    # Rounding costs a third of a step, and another one than to the nearest at most a whole one.
    return bool(np.linalg.norm(numbers - values) <= np.linalg.norm(steps + coarser))


def _numbers(model: ModelT, stored: TensorT) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What int8, float16 or float32 weights stand for, in their shape, and the step at each.

    Channels of zeros, which may have any scale, have steps of 0.
    """
    import numpy as np

    raw = np.frombuffer(bytes(model.buffers[stored.buffer].data), _STORED[type_of(stored)])
    values = raw.reshape(shape_of(stored)).astype(np.float32)
    if type_of(stored) != "int8":
        return values, (_HALF_STEP if type_of(stored) == "float16" else 0) * values
    scales = np.asarray(scales_of(stored) or (1.0,), np.float32)
    axis = stored.quantization.quantizedDimension if len(scales) > 1 else 0
    sizes = [-1 if i == axis else 1 for i in range(values.ndim)]
    points = np.resize(np.asarray(stored.quantization.zeroPoint), scales.shape).reshape(sizes)
    values -= points.astype(np.float32)
    others = tuple(i for i, size in enumerate(sizes) if size == 1)
    steps = scales.reshape(sizes) * values.any(axis=others, keepdims=True)
    return values * steps, np.broadcast_to(steps, values.shape)


def _unpack(model: ModelT, graph: SubGraphT, small: int, index: int) -> None:
    """Make a constant the result of a DEQUANTIZE of its small form, the first operator of all."""
    _release(model, graph.tensors[index])
    for other in graph.operators:
        if operator_name(model, other) == "DEQUANTIZE" and other.inputs[0] == small:
            graph.operators = [other, *(each for each in graph.operators if each is not other)]
            for each in graph.operators:
                each.inputs = [other.outputs[0] if i == index else i for i in each.inputs]
            return
    operator = _dequantize(model, small, index)
    graph.operators = [operator, *graph.operators]
    require_version(model, operator, needed_version(use_of(model, graph, operator)) or 1)


def with_rows_of_weights(data: bytes) -> bytes:
    """The same int8 model, in which a GATHER reads the rows of a layer's weights, if it can.

    litert-quantizer gives a table one scale for the rows that a GATHER reads, and stores it again
    with one for each row where a layer multiplies by it. The layer's numbers, multiplied by the
    scale of their row, are the same rows. `data` itself comes back without such tables. Raises
    `InputRefused` for bytes that are not a model.
    """
    seen = read(data, where="the model")
    if not any(_tied(seen, graph) for graph in seen.subgraphs):
        return data
    model = parse(data, where="the model")
    for graph in model.subgraphs:
        editor = GraphEditor(model, graph, {}, "int8")
        for (table, weights), gathers in _tied(model, graph).items():
            _read_rows(editor, weights, gathers)
            if not editor.readers(table):
                _release(model, graph.tensors[table])
    return serialize(model)


def _tied(model: ModelT, graph: SubGraphT) -> dict[tuple[int, int], list[OperatorT]]:
    """By table and by the weights that have the same numbers with finer scales, its GATHERs."""
    layers = {
        operator.inputs[1]: graph.tensors[operator.inputs[1]]
        for operator in graph.operators
        if operator_name(model, operator) == "FULLY_CONNECTED"
    }
    fine = {
        index: tensor
        for index, tensor in layers.items()
        if type_of(tensor) == "int8"
        and is_constant(model, tensor)
        and len(scales_of(tensor)) == shape_of(tensor)[0] > 1
    }
    found: dict[tuple[int, int], list[OperatorT]] = {}
    copies: dict[int, int | None] = {}
    for operator in graph.operators:
        if operator_name(model, operator) != "GATHER":
            continue
        index, options = operator.inputs[0], operator.builtinOptions
        table = graph.tensors[index]
        is_table = type_of(table) == "int8" and is_constant(model, table)
        if not is_table or (options is not None and (options.axis or options.batchDims)):
            continue
        if index not in copies:
            same = (i for i, each in fine.items() if _is_copy(model, each, table))
            copies[index] = next(same, None)
        if (weights := copies[index]) is not None and weights != index:
            found.setdefault((index, weights), []).append(operator)
    return found


def _read_rows(editor: GraphEditor, weights: int, gathers: Collection[OperatorT]) -> None:
    """Make GATHERs multiply rows of weights, as plain integers, by the scales of these rows."""
    import numpy as np

    operators = editor.graph.operators
    scales = _numbers(editor.model, editor.tensor(weights))[1][:, :1]
    step = float(scales.max()) / 255
    numbers = _integers(editor, editor.like(weights, "numbers"), 1.0)
    editor.tensor(numbers).buffer = editor.tensor(weights).buffer
    factors = editor.constant(weights, "scales", np.rint(scales / step) - 128, "int8")
    _integers(editor, factors, step, -128)
    for gather in gathers:
        ids, result = gather.inputs[1], gather.outputs[0]
        rows = _integers(editor, editor.like(result, "rows"), 1.0)
        scale = _integers(editor, editor.like(result, "scales"), step, -128)
        tensor = editor.tensor(scale)
        tensor.shape = [*shape_of(tensor)[:-1], 1]
        if tensor.shapeSignature is not None:
            tensor.shapeSignature = [*tensor.shapeSignature[:-1], 1]
        position = next(i for i, each in enumerate(operators) if each is gather)
        operators[position : position + 1] = [
            editor.operator("GATHER", [numbers, ids], rows),
            editor.operator("GATHER", [factors, ids], scale),
            editor.operator("MUL", [rows, scale], result),
        ]


def _integers(editor: GraphEditor, index: int, scale: float, point: int = 0) -> int:
    """The tensor, which has integers with this scale and zero point now."""
    from ai_edge_litert.schema_py_generated import QuantizationParametersT

    editor.tensor(index).quantization = QuantizationParametersT(scale=[scale], zeroPoint=[point])
    return index


def with_constants_once(data: bytes) -> bytes:
    """The same model, in which weights and tables of equal bytes and scales are one buffer.

    A bias stays, because XNNPACK finds by a layer's buffers what it has packed, which has scales of
    activations in it. `data` itself comes back without such constants, or if it is too large to
    edit. Raises `InputRefused` for bytes that are not a model.
    """
    repeated = len(data) <= MOST_FLATBUFFER_BYTES and _repeated(read(data, where="the model"))
    if not repeated:
        return data
    model = parse(data, where="the model")
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if (first := repeated.get(tensor.buffer)) is not None:
                _release(model, tensor)
                tensor.buffer = first
    return serialize(model)


def _repeated(model: ModelT) -> dict[int, int]:
    """The buffers of constants that another one has too, by the first of these."""
    own = {each.buffer for each in model.metadata or ()}
    firsts: dict[tuple[int, tuple[float, ...], bytes], int] = {}
    repeated: dict[int, int] = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if not is_constant(model, tensor) or len(shape_of(tensor)) < 2 or tensor.buffer in own:
                continue
            data = bytes(model.buffers[tensor.buffer].data)
            if len(data) >= _LEAST_NUMBERS:
                key = (tensor.type, scales_of(tensor), hashlib.sha256(data).digest())
                if (first := firsts.setdefault(key, tensor.buffer)) != tensor.buffer:
                    repeated[tensor.buffer] = first
    return repeated


def with_small_tables(data: bytes, kind: TableType, kept: Collection[str] = ()) -> bytes:
    """The same model, in which the float32 tables that only `_READ_AT` of the kind read are small.

    int8 tables have one scale, and the rows that were read are unpacked; float16 ones are unpacked
    first of all. Operators with an output among `kept` keep theirs. `data` itself comes back
    without such tables. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    if not any(_gathered(model, graph, kind) for graph in model.subgraphs):
        return data
    model = parse(data, where="the model")
    constants = OwnConstants(model)
    changed = False
    for graph in model.subgraphs:
        for index, readers in _gathered(model, graph, kind).items():
            if not constants.is_whole(graph, index) or index in graph.outputs:
                continue
            if constants.read(graph, index).size < _LEAST_NUMBERS or any(
                text(graph.tensors[each.outputs[0]].name) in kept for each in readers
            ):
                continue
            changed = True
            if kind == "float16":
                whole = unpacked(model, graph, index, halve)
                for operator in readers:
                    operator.inputs = [whole if i == index else i for i in operator.inputs]
            else:
                store_int8(model, graph.tensors[index], scales=1)
                for operator in readers:
                    _unpack_rows(model, graph, operator)
    return serialize(model) if changed else data


# litert-quantizer gives products of several matrices no weights of float16.
_READ_AT = {"int8": {"GATHER": 0}, "float16": {"GATHER": 0, "BATCH_MATMUL": 1}}


def _gathered(model: ModelT, graph: SubGraphT, kind: TableType) -> dict[int, list[OperatorT]]:
    """The tables that nothing but `_READ_AT` read, with these; their buffers are their own."""
    readers: dict[int, list[OperatorT]] = {}
    others = set[int]()
    for operator in graph.operators:
        at = _READ_AT[kind].get(operator_name(model, operator), -1)
        if at >= 0:
            readers.setdefault(operator.inputs[at], []).append(operator)
        others.update(index for i, index in enumerate(operator.inputs) if i != at)
    users = Counter(each.buffer for every in model.subgraphs for each in every.tensors)
    return {
        index: each
        for index, each in readers.items()
        if index not in others and users[graph.tensors[index].buffer] == 1
    }


def _unpack_rows(model: ModelT, graph: SubGraphT, gather: OperatorT) -> None:
    """Unpack what a GATHER reads from a table that became int8."""
    table, result = graph.tensors[gather.inputs[0]], gather.outputs[0]
    small = copy.copy(graph.tensors[result])
    small.name = f"{text(small.name)}_int8"
    small.type, small.quantization = table.type, table.quantization
    graph.tensors.append(small)
    gather.outputs = [len(graph.tensors) - 1]
    operator = _dequantize(model, gather.outputs[0], result)
    graph.operators.insert(graph.operators.index(gather) + 1, operator)
    for each in (gather, operator):
        require_version(model, each, needed_version(use_of(model, graph, each)) or 1)


def _dequantize(model: ModelT, small: int, result: int) -> OperatorT:
    from ai_edge_litert.schema_py_generated import (
        BuiltinOperator,
        BuiltinOptions,
        DequantizeOptionsT,
        OperatorT,
    )

    return OperatorT(
        opcodeIndex=code_of(model, BuiltinOperator.DEQUANTIZE),
        inputs=[small],
        outputs=[result],
        builtinOptionsType=BuiltinOptions.DequantizeOptions,
        builtinOptions=DequantizeOptionsT(),
    )


def with_scalars(data: bytes) -> bytes:
    """The same model, in which a constant of many equal numbers is one number.

    That is so where all of its readers add, multiply or compare it with another tensor. A large one
    that gives the result its size is filled when the model runs. `data` itself comes back without
    such constants. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    constants = OwnConstants(model)
    changed = False
    for graph in model.subgraphs:
        editor = GraphEditor(model, graph, {}, "int8")
        for index, readers in _elementwise(model, graph).items():
            if not constants.is_whole(graph, index):
                continue
            tensor, values = graph.tensors[index], constants.read(graph, index)
            if values.size < _LEAST_NUMBERS or not (values == values.flat[0]).all():
                continue
            if all(_broadcasts(graph, each, index) for each in readers):
                store_values(model, tensor, values.reshape(-1)[:1])
                tensor.shape, tensor.shapeSignature = [], None
            elif values.size >= _LEAST_FILLED:
                sizes = editor.constant(index, "sizes", values.shape, "int32")
                number = editor.constant(index, "number", values.flat[0])
                _release(model, tensor)
                fill = editor.operator("FILL", [sizes, number], index)
                graph.operators = [fill, *graph.operators]
            else:
                continue
            changed = True
    return serialize(model) if changed else data


def _elementwise(model: ModelT, graph: SubGraphT) -> dict[int, list[OperatorT]]:
    """The readers of the tensors that elementwise operators read, and nothing else."""
    readers: dict[int, list[OperatorT]] = {}
    others = set(graph.outputs)
    for operator in graph.operators:
        if operator_name(model, operator) not in _ELEMENTWISE:
            others.update(operator.inputs)
            continue
        for index in operator.inputs:
            readers.setdefault(index, []).append(operator)
    return {index: each for index, each in readers.items() if index not in others}


def _release(model: ModelT, tensor: TensorT) -> None:
    """Take a tensor's values away, of which an operator makes others."""
    from ai_edge_litert.schema_py_generated import BufferT

    users = sum(each.buffer == tensor.buffer for g in model.subgraphs for each in g.tensors)
    if users == 1:
        model.buffers[tensor.buffer] = BufferT()
    tensor.buffer = empty_buffer(model)


def _broadcasts(graph: SubGraphT, operator: OperatorT, index: int) -> bool:
    """Whether an operator gives the same shape with one number in place of a constant."""
    others = [each for each in operator.inputs if each != index]
    if len(others) != 1:
        return False
    other = graph.tensors[others[0]]
    open_or_fixed = other.shapeSignature if other.shapeSignature is not None else other.shape
    sizes = [] if open_or_fixed is None else [int(size) for size in open_or_fixed]
    own = shape_of(graph.tensors[index])
    if len(own) > len(sizes):
        return False
    return all(size in (1, there) for size, there in zip(own[::-1], sizes[::-1], strict=False))


_LARGEST = 65504.0
# The version of a DEQUANTIZE that takes float16.
_UNPACKS_HALVES = 3


def with_half_biases(data: bytes) -> bytes:
    """The same model, with the biases of layers that have float16 weights as float16 too.

    XNNPACK of LiteRT 1.1.1 to 1.3.0 takes every bias of such a layer for float16: with the
    float32 biases that litert-quantizer leaves, the answers are NaN or wrong, or the process ends.
    Biases beyond the range of float16 stay. `data` itself comes back if there is nothing to
    change. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    if not any(_biases(model, graph) for graph in model.subgraphs):
        return data
    model = parse(data, where="the model")
    for graph in model.subgraphs:
        for index in _biases(model, graph):
            replaced = unpacked(model, graph, index, halve)
            for operator in graph.operators[1:]:
                operator.inputs = [replaced if i == index else i for i in operator.inputs]
            graph.outputs = [replaced if i == index else i for i in graph.outputs]
    return serialize(model)


def _biases(model: ModelT, graph: SubGraphT) -> list[int]:
    """The stored float32 biases of layers whose weights are unpacked from float16."""
    import numpy as np

    halves = {
        operator.outputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
        and type_of(graph.tensors[operator.inputs[0]]) == "float16"
    }
    biases: dict[int, None] = {}
    for operator in graph.operators:
        slots = SLOTS.get(operator_name(model, operator))
        if slots is None or len(operator.inputs) <= slots[2]:
            continue
        weights, index = operator.inputs[slots[1]], operator.inputs[slots[2]]
        if weights not in halves or index == -1:
            continue
        tensor = graph.tensors[index]
        is_stored = type_of(tensor) == "float32" and is_constant(model, tensor)
        if is_stored and np.all(abs(floats_of(model, tensor)) <= _LARGEST):
            biases[index] = None
    return list(biases)


def unpacked(
    model: ModelT, graph: SubGraphT, index: int, store: Callable[[ModelT, TensorT], None]
) -> int:
    """Make a constant small with `store`, and unpack it first of all; the index of the result."""
    small = graph.tensors[index]
    result = copy.copy(small)
    result.buffer = empty_buffer(model)
    graph.tensors.append(result)
    store(model, small)
    small.name = f"{text(small.name)}_{type_of(small)}"
    operator = _dequantize(model, index, len(graph.tensors) - 1)
    graph.operators = [operator, *graph.operators]
    if type_of(small) == "float16":
        require_version(model, operator, _UNPACKS_HALVES)
    return len(graph.tensors) - 1


def halve(model: ModelT, tensor: TensorT) -> None:
    """Store a constant as float16."""
    from ai_edge_litert.schema_py_generated import TensorType

    store_values(model, tensor, floats_of(model, tensor).astype("<f2"))
    tensor.type = TensorType.FLOAT16


def floats_of(model: ModelT, tensor: TensorT) -> NDArray[np.float32]:
    """The values of a float32 constant, flat."""
    import numpy as np

    return np.frombuffer(bytes(model.buffers[tensor.buffer].data), "<f4")


def store_int8(model: ModelT, tensor: TensorT, scales: int) -> None:
    """Store float32 weights as int8, with that many symmetric scales along the first axis."""
    import numpy as np
    from ai_edge_litert.schema_py_generated import QuantizationParametersT, TensorType

    values = floats_of(model, tensor).reshape(scales, -1)
    scale = (np.max(np.abs(values), axis=1, initial=0.0) / 127).astype(np.float32)
    scale[scale == 0] = 1.0
    store_values(model, tensor, np.rint(values / scale[:, None]).clip(-127, 127).astype(np.int8))
    tensor.type = TensorType.INT8
    tensor.quantization = QuantizationParametersT(
        scale=scale, zeroPoint=np.zeros(scales, np.int64), quantizedDimension=0
    )
