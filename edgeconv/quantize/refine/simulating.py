"""Weights of one quantized file in another graph of the same model: a quantized or the float one.

Files whose activations are floats, or have 16 bits, lose accuracy by their weights alone, and those
are the same in all of them. So one pass over the layers serves them all. And the runtime has only
reference kernels for activations of 16 bits, which take a hundred times as long as those for
floats: where many samples are run, floats stand in for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import OwnConstants
from edgeconv.model.tflite.flatbuffer import entry_subgraphs, parse, serialize
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of
from edgeconv.quantize.refine.layers import RefinableLayer, from_rows, geometry
from edgeconv.quantize.refine.matching import match_layers
from edgeconv.quantize.refine.weights import read_bias, read_weights, write_bias, write_weights
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, TensorT
    from numpy.typing import NDArray

    from edgeconv.quantize.refine.rounding import Rounded

_BITS = {"int8": 8, "int4": 4}


class RoundedWeights(NamedTuple):
    """Weights of a layer, and their bits."""

    weights: Rounded
    bits: int


def rounded_weights(quantized: bytes, floating: bytes) -> dict[int, RoundedWeights]:
    """The weights of a file by the number of the float model's operator, where they are integers.

    Raises `InputRefused` for models that do not belong together.
    """
    inside, outside = parse(quantized, where="the file"), parse(floating, where="the float model")
    return {
        layer.floating.number: RoundedWeights(_rows(inside, layer), _BITS[kind])
        for layer in match_layers(inside, outside)
        if not layer.left_alone and (kind := type_of(_weights(inside, layer))) in _BITS
    }


def with_weights_of(target: bytes, source: bytes, floating: bytes) -> bytes:
    """`target` with the weights and biases of `source`; both were quantized from `floating`.

    Layers that one of them does not have, or stores in another way, stay as they are. Raises
    `InputRefused` for models that do not belong together.
    """
    into, outside = parse(target, where="the file"), parse(floating, where="the float model")
    origin = parse(source, where="the file of weights")
    by_number = {layer.floating.number: layer for layer in match_layers(origin, outside)}
    for layer in match_layers(into, outside):
        other = by_number.get(layer.floating.number)
        if other is None or layer.left_alone or other.left_alone:
            continue
        tensors = _weights(into, layer), _weights(origin, other)
        kinds = [(type_of(tensor), len(scales_of(tensor))) for tensor in tensors]
        if kinds[0] != kinds[1] or kinds[0][0] not in _BITS:
            continue
        weights = _rows(origin, other)
        write_weights(into, layer, weights, _BITS[kinds[0][0]])
        bias = read_bias(origin, other, weights.scales.size)
        if layer.quantized.bias != -1 or np.any(bias):
            write_bias(into, layer, bias, weights.scales.reshape(-1))
    return serialize(into)


def simulated(quantized: bytes, floating: bytes) -> bytes | None:
    """The float model with the weights of `quantized`, whose activations have 16 bits.

    None for other files, and for those that the layers of the float model do not belong to.
    """
    inside = parse(quantized, where="the quantized model")
    outside = parse(floating, where="the float model")
    if entry_subgraphs(inside) != [0] or entry_subgraphs(outside) != [0]:
        return None
    try:
        layers = match_layers(inside, outside)
    except InputRefused:
        return None
    tensors = inside.subgraphs[0].tensors
    kinds = {type_of(tensors[layer.quantized.source]) for layer in layers}
    if "int16" not in kinds or "int8" in kinds:
        return None
    constants = OwnConstants(outside)
    for layer in layers:
        if not layer.left_alone and type_of(_weights(inside, layer)) in _BITS:
            _write_floats(constants, outside, inside, layer)
    return serialize(outside)


def _write_floats(
    constants: OwnConstants, outside: ModelT, inside: ModelT, layer: RefinableLayer
) -> None:
    graph = outside.subgraphs[0]
    operator = graph.operators[layer.floating.number]
    rows = _rows(inside, layer)
    values = from_rows(rows.values, layer.operator, shape_of(_weights(inside, layer)))
    constants.write(graph, operator, 1, values.astype(np.float32))
    if layer.quantized.bias != -1:
        stored: NDArray[np.float32] = read_bias(inside, layer, rows.scales.size).astype(np.float32)
        constants.write_bias(graph, operator, stored)


def _weights(model: ModelT, layer: RefinableLayer) -> TensorT:
    return model.subgraphs[0].tensors[layer.quantized.weights]


def _rows(model: ModelT, layer: RefinableLayer) -> Rounded:
    source = model.subgraphs[0].tensors[layer.quantized.source]
    return read_weights(model, layer, geometry(model, layer, shape_of(source)).groups)
