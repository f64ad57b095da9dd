"""Which operators of a quantized graph can be refined, and their counterparts in the float one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.quantize.refine.moments import Geometry, Window
from edgeconv.tflite.blocks import is_in_blocks
from edgeconv.tflite.flatbuffer import is_constant, operator_name, text
from edgeconv.tflite.uses import shape_of, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
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

    `source` is its input, `weights` the stored tensor, behind a DEQUANTIZE where there is one;
    `bias` is -1 where there is none.
    """

    number: int
    source: int
    weights: int
    bias: int


class RefinableLayer(NamedTuple):
    """A weighted operator of both graphs; `left_alone` says why it is not to be refined."""

    name: str
    operator: str
    quantized: OperatorTensors
    floating: OperatorTensors
    left_alone: str


def match_layers(quantized: ModelT, floating: ModelT) -> list[RefinableLayer]:
    """The layers of the first graphs of both models, in order.

    A quantizer keeps the order of operators. Raises `InputRefused` where it did not.
    """
    weighted = [list(_places(model)) for model in (quantized, floating)]
    graphs = (quantized.subgraphs[0], floating.subgraphs[0])
    shapes = [
        [shape_of(graph.tensors[tensors.weights]) for tensors in operators]
        for graph, operators in zip(graphs, weighted, strict=True)
    ]
    names = [
        [
            operator_name(model, model.subgraphs[0].operators[tensors.number])
            for tensors in operators
        ]
        for model, operators in zip((quantized, floating), weighted, strict=True)
    ]
    if shapes[0] != shapes[1] or names[0] != names[1]:
        raise InputRefused(
            "the quantized model has other layers than the float model",
            hint="give the float32 .tflite that it was made from",
        )
    return [
        _layer(quantized, floating, inside, outside)
        for inside, outside in zip(weighted[0], weighted[1], strict=True)
    ]


def unrefined_operators(model: ModelT) -> tuple[str, ...]:
    """The operators with weights that are not refined, sorted."""
    graph = model.subgraphs[0]
    return tuple(
        sorted(
            {
                operator_name(model, operator)
                for operator in graph.operators
                if operator_name(model, operator) in OTHERS
                and any(_has_values(model, graph.tensors[i]) for i in operator.inputs if i != -1)
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


def _places(model: ModelT) -> Iterator[OperatorTensors]:
    graph = model.subgraphs[0]
    makers = {i: operator for operator in graph.operators for i in operator.outputs}
    for number, operator in enumerate(graph.operators):
        if operator_name(model, operator) in REFINED:
            inputs = operator.inputs
            weights = _stored(model, graph, makers, inputs[1])
            yield OperatorTensors(number, inputs[0], weights, inputs[2] if len(inputs) > 2 else -1)


def _stored(model: ModelT, graph: SubGraphT, makers: dict[int, OperatorT], index: int) -> int:
    maker = makers.get(index)
    if maker is not None and operator_name(model, maker) == "DEQUANTIZE":
        source: int = maker.inputs[0]
        return source if is_constant(model, graph.tensors[source]) else index
    return index


def _layer(
    quantized: ModelT, floating: ModelT, inside: OperatorTensors, outside: OperatorTensors
) -> RefinableLayer:
    graph = floating.subgraphs[0]
    operator = graph.operators[outside.number]
    return RefinableLayer(
        text(graph.tensors[operator.outputs[0]].name),
        operator_name(floating, operator),
        inside,
        outside,
        _reason(quantized, floating, inside, outside),
    )


def _reason(
    quantized: ModelT, floating: ModelT, inside: OperatorTensors, outside: OperatorTensors
) -> str:
    """Why a layer is left alone; "" where it is not."""
    weights = quantized.subgraphs[0].tensors[inside.weights]
    original = floating.subgraphs[0].tensors[outside.weights]
    if not _has_values(quantized, weights) or not _has_values(floating, original):
        return "its weights are computed"
    if not (_bias_is_stored(quantized, inside.bias) and _bias_is_stored(floating, outside.bias)):
        return "its bias is computed"
    activations = type_of(quantized.subgraphs[0].tensors[inside.source])
    if activations not in ("float32", "int8", "int16"):
        return f"its input is {activations}"
    if type_of(original) != "float32":
        return "the float model does not store its weights as float32"
    if type_of(weights) not in ("int8", "int4", "float32"):
        return f"its weights are {type_of(weights)}"
    if weights.sparsity is not None or original.sparsity is not None:
        return "its weights are sparse"
    if _shares(quantized, inside.weights) or _shares(floating, outside.weights):
        return "it shares its weights with another operator"
    quantization = weights.quantization
    if type_of(weights) != "float32":
        if is_in_blocks(weights) and activations == "float32":
            return ""
        if quantization is None or quantization.scale is None or quantization.details is not None:
            return "its weights are quantized in a way that is not known"
        if quantization.zeroPoint is not None and np.any(quantization.zeroPoint):
            return "its weights have zero points"
    return ""


def _bias_is_stored(model: ModelT, index: int) -> bool:
    return index == -1 or is_constant(model, model.subgraphs[0].tensors[index])


def _has_values(model: ModelT, tensor: TensorT) -> bool:
    return is_constant(model, tensor)


def _shares(model: ModelT, index: int) -> bool:
    """Whether more than one operator reads the stored tensor, or another has the same buffer."""
    graph = model.subgraphs[0]
    readers = sum(list(operator.inputs).count(index) for operator in graph.operators)
    makers = [o for o in graph.operators if index in o.inputs]
    if len(makers) == 1 and operator_name(model, makers[0]) == "DEQUANTIZE":
        wide = makers[0].outputs[0]
        readers = sum(list(operator.inputs).count(wide) for operator in graph.operators)
    buffer = graph.tensors[index].buffer
    tensors = sum(t.buffer == buffer for each in model.subgraphs for t in each.tensors)
    return readers > 1 or tensors > 1
