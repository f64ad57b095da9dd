"""Constants that are stored smaller, and unpacked by a DEQUANTIZE before they are used."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from edgeconv.tflite.biases import SLOTS
from edgeconv.tflite.edit import code_of, empty_buffer, require_version, store_values
from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, serialize, text
from edgeconv.tflite.uses import type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT, TensorT
    from numpy.typing import NDArray

_LARGEST = 65504.0
# The version of a DEQUANTIZE that takes float16.
_UNPACKS_HALVES = 3


def with_half_biases(data: bytes) -> bytes:
    """The same model, with the biases of layers that have float16 weights as float16 too.

    XNNPACK of LiteRT 1.1.1 to 1.3.0 takes every bias of such a layer for float16: with the
    float32 biases that ai-edge-quantizer leaves, the answers are NaN or wrong, or the process ends.
    Biases beyond the range of float16 stay. `data` itself comes back where there is nothing to
    change. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    changed = [_halve_biases(model, graph) for graph in model.subgraphs]
    return serialize(model) if any(changed) else data


def _halve_biases(model: ModelT, graph: SubGraphT) -> bool:
    biases = _biases(model, graph)
    for index in biases:
        replaced = unpacked(model, graph, index, halve)
        for operator in graph.operators[1:]:
            operator.inputs = [replaced if i == index else i for i in operator.inputs]
        graph.outputs = [replaced if i == index else i for i in graph.outputs]
    return bool(biases)


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
    from ai_edge_litert.schema_py_generated import (
        BuiltinOperator,
        BuiltinOptions,
        DequantizeOptionsT,
        OperatorT,
    )

    small = graph.tensors[index]
    result = copy.copy(small)
    result.buffer = empty_buffer(model)
    graph.tensors.append(result)
    store(model, small)
    small.name = f"{text(small.name)}_{type_of(small)}"
    operator = OperatorT(
        opcodeIndex=code_of(model, BuiltinOperator.DEQUANTIZE),
        inputs=[index],
        outputs=[len(graph.tensors) - 1],
        builtinOptionsType=BuiltinOptions.DequantizeOptions,
        builtinOptions=DequantizeOptionsT(),
    )
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
