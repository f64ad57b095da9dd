"""Which operators of a quantized graph can be refined, and their counterparts in the float one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite.flatbuffer import is_constant, operator_name
from edgeconv.model.tflite.operators import shape_of
from edgeconv.quantize.refine.moments import Geometry, Window

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT
    from numpy.typing import NDArray

REFINED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
# These have weights of other shapes, which are left as they are.
OTHERS = (
    "BATCH_MATMUL",
    "BIDIRECTIONAL_SEQUENCE_LSTM",
    "BIDIRECTIONAL_SEQUENCE_RNN",
    "CONV_3D",
    "CONV_3D_TRANSPOSE",
    "EMBEDDING_LOOKUP",
    "GATHER",
    "LSTM",
    "RNN",
    "SVDF",
    "TRANSPOSE_CONV",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN",
)


class OperatorTensors(NamedTuple):
    """A weighted operator in its graph: its number, and the tensors of its parts.

    `source` is its input, `weights` the stored tensor, behind a DEQUANTIZE if there is one;
    `bias` is -1 if there is none.
    """

    number: int
    source: int
    weights: int
    bias: int


class RefinableLayer(NamedTuple):
    """A weighted operator of both graphs; `left_alone` says why it is not to be refined.

    `shares`: that is because others like it have the same weights, which can have other bits.
    """

    name: str
    operator: str
    quantized: OperatorTensors
    floating: OperatorTensors
    left_alone: str
    shares: bool = False


def unrefined_operators(model: ModelT) -> tuple[str, ...]:
    """The operators with weights that are not refined, sorted."""
    graph = model.subgraphs[0]
    return tuple(
        sorted(
            {
                operator_name(model, operator)
                for operator in graph.operators
                if operator_name(model, operator) in OTHERS
                and any(is_constant(model, graph.tensors[i]) for i in operator.inputs if i != -1)
            }
        )
    )


def geometry(model: ModelT, layer: RefinableLayer, input_shape: tuple[int, ...]) -> Geometry:
    """How the layer's input of this shape becomes rows."""
    graph = model.subgraphs[0]
    operator = graph.operators[layer.quantized.number]
    weights = shape_of(graph.tensors[layer.quantized.weights])
    if layer.operator == "FULLY_CONNECTED":
        return Geometry(1, weights[1], None)
    options: Any = operator.builtinOptions
    window = Window(
        (weights[1], weights[2]),
        (options.strideH, options.strideW),
        (options.dilationHFactor, options.dilationWFactor),
        same=options.padding == 0,
    )
    channels = input_shape[-1]
    groups = channels if layer.operator == "DEPTHWISE_CONV_2D" else channels // weights[3]
    return Geometry(groups, weights[1] * weights[2] * channels // groups, window)


def to_rows(values: NDArray[Any], operator: str, groups: int) -> NDArray[Any]:
    """Weights in the operator's layout as (groups, channels, d); see `from_rows`."""
    if operator != "DEPTHWISE_CONV_2D":
        return values.reshape(groups, len(values) // groups, -1)
    taps = values.reshape(-1, groups, values.shape[3] // groups)
    return np.moveaxis(taps, 0, 2)


def from_rows(rows: NDArray[Any], operator: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """What `to_rows` made, back in the operator's layout and shape."""
    ordered = np.moveaxis(rows, 2, 0) if operator == "DEPTHWISE_CONV_2D" else rows
    return np.ascontiguousarray(ordered).reshape(shape)


def float_values(model: ModelT, index: int) -> NDArray[np.float64]:
    """A float32 constant of the first graph in its shape."""
    tensor = model.subgraphs[0].tensors[index]
    raw = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32)
    return raw.reshape(shape_of(tensor)).astype(np.float64)
