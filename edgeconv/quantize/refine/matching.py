"""Which layer of a quantized model is which of the float model, and what can be refined.

litert-quantizer keeps the order of operators. TFLiteConverter sorts them again, and names some
otherwise, so a layer is known by its operator, the shape of its weights, and their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import block_scales, is_in_blocks
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, text
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of
from edgeconv.quantize.refine.layers import REFINED, OperatorTensors, RefinableLayer
from edgeconv.quantize.refine.weights import unpack_int4
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# The cosine between weights and what they became: with 4 bits it is above .98, between different
# layers of a network below .5.
_LEAST_SIMILARITY = 0.9
# Half a step, with room for how the quotient was rounded.
_ROUNDING = 0.51


_SHARES = "it shares its weights with another operator"


def match_layers(quantized: ModelT, floating: ModelT) -> list[RefinableLayer]:
    """The layers that the first graphs of both models have, in the order of the quantized one.

    Raises `InputRefused` if there are layers, and none is in both.
    """
    remaining = list(_weighted(floating))
    layers = []
    for inside in _weighted(quantized):
        match = next(
            (outside for outside in remaining if _is_same(quantized, inside, floating, outside)),
            None,
        )
        if match is not None:
            remaining.remove(match)
            layers.append(_layer(quantized, floating, inside, match))
    if remaining and not layers:
        raise InputRefused("the quantized model has other layers than the float model")
    return layers


def unmatched_layers(floating: ModelT, layers: list[RefinableLayer]) -> tuple[str, ...]:
    """The names of the float model's layers that are not among the matched ones."""
    matched = {layer.floating.number for layer in layers}
    return tuple(
        _name(floating, tensors.number)
        for tensors in _weighted(floating)
        if tensors.number not in matched
    )


def _is_same(
    quantized: ModelT, inside: OperatorTensors, floating: ModelT, outside: OperatorTensors
) -> bool:
    models = ((quantized, inside), (floating, outside))
    names = {operator_name(m, m.subgraphs[0].operators[t.number]) for m, t in models}
    shapes = {shape_of(m.subgraphs[0].tensors[t.weights]) for m, t in models}
    if len(names) > 1 or len(shapes) > 1:
        return False
    mine, other = (_weights(model, tensors.weights) for model, tensors in models)
    if mine is None or other is None:
        return mine is other
    both = float(np.linalg.norm(mine.values) * np.linalg.norm(other.values))
    if not both or float(np.vdot(mine.values, other.values)) >= _LEAST_SIMILARITY * both:
        return True
    # Where steps are as large as nearly zero weights, rounding leaves nothing similar.
    rounding = np.abs(mine.values - other.values) <= _ROUNDING * mine.step
    return bool(np.all(rounding))


class _Weights(NamedTuple):
    """Weights as real numbers, in their shape, and the step from one to the next (0 for floats)."""

    values: Floats
    step: Floats


def _weights(model: ModelT, index: int) -> _Weights | None:
    """The numbers of a stored tensor; None where they are not known."""
    graph = model.subgraphs[0]
    tensor = graph.tensors[index]
    kind = type_of(tensor)
    if tensor.sparsity is not None or not is_constant(model, tensor):
        return None
    if kind not in ("int4", "int8", "float16", "float32"):
        return None
    shape, scales = shape_of(tensor), np.array(scales_of(tensor))
    stored = np.frombuffer(bytes(model.buffers[tensor.buffer].data), kind.replace("int4", "int8"))
    if kind == "int4":
        stored = unpack_int4(stored, int(np.prod(shape)))
    values: Floats = stored.reshape(shape).astype(np.float64)
    if not len(scales) and not is_in_blocks(tensor):
        return _Weights(values, np.zeros(1))
    step: Floats = scales[:1]
    if is_in_blocks(tensor):
        step = block_scales(model, graph, tensor).reshape(shape).astype(np.float64)
    elif len(scales) > 1:
        spread = [1] * len(shape)
        spread[tensor.quantization.quantizedDimension] = -1
        step = scales.reshape(spread)
    return _Weights(values * step, step)


def _weighted(model: ModelT) -> Iterator[OperatorTensors]:
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
    reason = _reason(quantized, floating, inside, outside)
    return RefinableLayer(
        _name(floating, outside.number),
        operator_name(floating, floating.subgraphs[0].operators[outside.number]),
        inside,
        outside,
        reason,
        reason == _SHARES and _alike_share(quantized, inside.weights),
    )


def _name(model: ModelT, number: int) -> str:
    graph = model.subgraphs[0]
    return text(graph.tensors[graph.operators[number].outputs[0]].name)


def _reason(
    quantized: ModelT, floating: ModelT, inside: OperatorTensors, outside: OperatorTensors
) -> str:
    """Why a layer is left alone; "" where it is not."""
    weights = quantized.subgraphs[0].tensors[inside.weights]
    original = floating.subgraphs[0].tensors[outside.weights]
    if not is_constant(quantized, weights) or not is_constant(floating, original):
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
        return _SHARES
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


def _alike_share(model: ModelT, index: int) -> bool:
    """Whether a tensor is read as the weights of operators of one kind, and its buffer by it."""
    graph = model.subgraphs[0]
    buffer = graph.tensors[index].buffer
    if sum(t.buffer == buffer for each in model.subgraphs for t in each.tensors) > 1:
        return False
    numbers = {each.number for each in _weighted(model) if each.weights == index}
    kinds = {operator_name(model, graph.operators[number]) for number in numbers}
    read = {
        index,
        *(
            o.outputs[0]
            for o in graph.operators
            if index in o.inputs and operator_name(model, o) == "DEQUANTIZE"
        ),
    }
    others = (
        operator
        for number, operator in enumerate(graph.operators)
        if number not in numbers and operator_name(model, operator) != "DEQUANTIZE"
    )
    return len(kinds) == 1 and all(read.isdisjoint(operator.inputs) for operator in others)


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
