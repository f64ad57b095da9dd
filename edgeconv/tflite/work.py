"""The work of operators: their multiplications, each with an addition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import operator_name
from edgeconv.tflite.uses import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    Shape = tuple[int, ...]

# The inputs of an LSTM that are matrices of weights, of the four gates and of the projection.
_LSTM_WEIGHTS = (*range(1, 9), 16)


def macs(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int:
    """The multiplications of one invoke, 0 for operators without sums of products.

    Dynamic dimensions count as they are stored, which is 1. Those of a loop are of one step.
    """
    count = _COUNTS.get(operator_name(model, operator))
    if count is None:
        return 0
    shapes = [_shape(graph, index) for index in operator.inputs]
    outputs = [_shape(graph, index) for index in operator.outputs]
    try:
        return count(shapes, outputs[0])
    except IndexError:
        # An operator without the inputs of its kind, which no runtime runs.
        return 0


def _shape(graph: SubGraphT, index: int) -> Shape:
    """The shape of a tensor; of an optional one that is missing, no elements."""
    return shape_of(graph.tensors[index]) if index != -1 else (0,)


def _dense(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][-1:])


def _lstm(inputs: list[Shape], _: Shape) -> int:
    weights: int = sum(math.prod(inputs[index]) for index in _LSTM_WEIGHTS if index < len(inputs))
    steps: int = math.prod(inputs[0][:-1])
    return weights * steps


# By the shapes of the inputs and that of the output.
_COUNTS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "BATCH_MATMUL": lambda inputs, output: math.prod(inputs[0]) * output[-1],
    "CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:]),
    "CONV_3D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][:-1]),
    "DEPTHWISE_CONV_2D": lambda inputs, output: math.prod(output) * math.prod(inputs[1][1:3]),
    "FULLY_CONNECTED": _dense,
    "SVDF": lambda inputs, _: inputs[0][0] * (math.prod(inputs[1]) + math.prod(inputs[2])),
    "TRANSPOSE_CONV": lambda inputs, _: math.prod(inputs[2][:-1]) * math.prod(inputs[1]),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}
