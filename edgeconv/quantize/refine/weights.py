"""New weights and biases put into a quantized model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.model.tflite.biases import BIAS_LIMITS
from edgeconv.model.tflite.edit import block_scales, is_in_blocks, require_version, store_values
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of
from edgeconv.quantize.refine.layers import RefinableLayer, from_rows, to_rows
from edgeconv.quantize.refine.rounding import Rounded

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_BIAS_TYPES = {"int8": "int32", "int16": "int64", "float32": "float32"}
# The version from which an operator takes 4-bit weights, by the type of its input; an older
# runtime would read them as something else, and refuses the version.
_INT4_VERSIONS = {
    ("CONV_2D", "int8"): 7,
    ("CONV_2D", "int16"): 7,
    ("CONV_2D", "float32"): 7,
    ("DEPTHWISE_CONV_2D", "int8"): 7,
    ("FULLY_CONNECTED", "int8"): 10,
    ("FULLY_CONNECTED", "int16"): 13,
    ("FULLY_CONNECTED", "float32"): 12,
}
_INT4_DEQUANTIZE = 6


def takes_int4(model: ModelT, layer: RefinableLayer) -> bool:
    """Whether LiteRT computes the operator right with 4-bit weights.

    Seen in LiteRT 2.3: a depthwise convolution of floats refuses them, and one of int16 gives
    wrong numbers; behind a DEQUANTIZE everything takes them.
    """
    tensors = layer.quantized
    direct = _operator(model, layer).inputs[1] == tensors.weights
    return not direct or (layer.operator, _input_type(model, layer)) in _INT4_VERSIONS


def read_weights(model: ModelT, layer: RefinableLayer, groups: int) -> Rounded:
    """The stored int8 or int4 weights as (groups, channels, d), with a scale for each channel.

    Those in blocks have theirs as (groups, channels, d).
    """
    tensor = model.subgraphs[0].tensors[layer.quantized.weights]
    raw = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.int8)
    shape = shape_of(tensor)
    integers = unpack_int4(raw, int(np.prod(shape))) if type_of(tensor) == "int4" else raw
    rows = to_rows(integers.reshape(shape), layer.operator, groups)
    if is_in_blocks(tensor):
        return Rounded(rows, block_scales(model, model.subgraphs[0], tensor).reshape(rows.shape))
    scales = np.array(scales_of(tensor), np.float32)
    channels = rows.shape[0] * rows.shape[1]
    return Rounded(rows, np.broadcast_to(scales, channels).reshape(*rows.shape[:2], 1))


def write_weights(model: ModelT, layer: RefinableLayer, weights: Rounded, bits: int) -> None:
    """Store weights of (groups, channels, d), a scale for each channel, at 4 or 8 bits.

    Those in blocks, with scales of (groups, channels, d), stay so.
    """
    from ai_edge_litert.schema_py_generated import QuantizationParametersT, TensorType

    tensor = model.subgraphs[0].tensors[layer.quantized.weights]
    integers = from_rows(weights.integers, layer.operator, shape_of(tensor))
    if weights.scales.shape[-1] > 1:
        store_values(model, tensor, pack_int4(integers))
        details: Any = tensor.quantization.details
        scales = weights.scales.reshape(-1)[:: details.blockSize]
        store_values(model, model.subgraphs[0].tensors[details.scales], scales.astype("<f2"))
        return
    one_scale = len(scales_of(tensor)) == 1 and bits == 8
    scales = weights.scales.reshape(-1)[:1] if one_scale else weights.scales.reshape(-1)
    tensor.type = TensorType.INT4 if bits == 4 else TensorType.INT8
    tensor.quantization = QuantizationParametersT(
        scale=scales.astype(np.float32),
        zeroPoint=np.zeros(len(scales), np.int64),
        quantizedDimension=3 if layer.operator == "DEPTHWISE_CONV_2D" else 0,
    )
    store_values(model, tensor, pack_int4(integers) if bits == 4 else integers)
    if bits == 4:
        _require_int4(model, layer)


def largest_unit(model: ModelT, layer: RefinableLayer) -> float:
    """The scale of an integer input, 0 for a float one: a bias is of this times the weights'."""
    tensor = model.subgraphs[0].tensors[layer.quantized.source]
    return 0.0 if type_of(tensor) == "float32" else scales_of(tensor)[0]


def write_bias(
    model: ModelT, layer: RefinableLayer, bias: Floats, scales: NDArray[np.float32]
) -> None:
    """Store the bias, (channels,), in a tensor of the operator's own.

    Integers where the input is: at its scale times `scales`, those of the weights (channels,).
    """
    from ai_edge_litert.schema_py_generated import QuantizationParametersT

    kind = bias_type(model, layer)
    index = _own_bias(model, layer, len(bias), kind)
    tensor = model.subgraphs[0].tensors[index]
    if kind == "float32":
        store_values(model, tensor, bias.astype(np.float32))
    else:
        units = np.float32(largest_unit(model, layer)) * scales
        numbers = np.rint(bias / units.astype(np.float64))
        most = BIAS_LIMITS[kind]
        store_values(model, tensor, np.clip(numbers, -most, most).astype(kind))
        tensor.quantization = QuantizationParametersT(
            scale=units, zeroPoint=np.zeros(len(units), np.int64), quantizedDimension=0
        )


def bias_type(model: ModelT, layer: RefinableLayer) -> str:
    """The type of the layer's bias: int32, int64 or float32; where it has none, of a new one."""
    if layer.quantized.bias == -1:
        return _BIAS_TYPES[_input_type(model, layer)]
    return type_of(model.subgraphs[0].tensors[layer.quantized.bias])


def read_bias(model: ModelT, layer: RefinableLayer, channels: int) -> Floats:
    """The bias as numbers, (channels,); zeros if there is none."""
    if layer.quantized.bias == -1:
        return np.zeros(channels)
    tensor = model.subgraphs[0].tensors[layer.quantized.bias]
    stored = np.frombuffer(bytes(model.buffers[tensor.buffer].data), type_of(tensor))
    scales = scales_of(tensor)
    return stored * np.array(scales, np.float64) if scales else stored.astype(np.float64)


def pack_int4(integers: NDArray[np.int8]) -> NDArray[np.uint8]:
    """4-bit numbers of any shape as uint8 [ceil(n / 2)], the first of two in the low half."""
    flat: NDArray[np.uint8] = integers.reshape(-1).view(np.uint8)
    halves = np.concatenate([flat, np.zeros(len(flat) % 2, np.uint8)])
    both: NDArray[np.uint8] = np.bitwise_or(halves[::2] & 15, halves[1::2] << 4).astype(np.uint8)
    return both


def unpack_int4(raw: NDArray[np.int8], count: int) -> NDArray[np.int8]:
    """The first `count` numbers of what `pack_int4` packed: int8 [count]."""
    both = np.stack([raw << 4, raw], axis=1).reshape(-1)[:count]
    numbers: NDArray[np.int8] = both >> 4
    return numbers


def _input_type(model: ModelT, layer: RefinableLayer) -> str:
    return type_of(model.subgraphs[0].tensors[layer.quantized.source])


def _operator(model: ModelT, layer: RefinableLayer) -> OperatorT:
    return model.subgraphs[0].operators[layer.quantized.number]


def _own_bias(model: ModelT, layer: RefinableLayer, channels: int, kind: str) -> int:
    """A bias tensor that only this operator reads: the one it has, a copy, or a new one.

    Others with the same weights, and so the same bias, may read it as well.
    """
    from ai_edge_litert.schema_py_generated import TensorT, TensorType

    graph = model.subgraphs[0]
    operator = _operator(model, layer)
    index = layer.quantized.bias
    readers = [each for each in graph.operators if index in each.inputs]
    is_alike = layer.shares and all(each.inputs[1] == operator.inputs[1] for each in readers)
    if index != -1 and (is_alike or len(readers) == 1):
        return index
    if index == -1:
        name = f"{layer.name}_bias"
        tensor = TensorT(name=name, shape=[channels], type=getattr(TensorType, kind.upper()))
        tensor.hasRank = True
    else:
        tensor = copy.copy(graph.tensors[index])
    graph.tensors.append(tensor)
    operator.inputs = [*list(operator.inputs)[:2], len(graph.tensors) - 1]
    return len(graph.tensors) - 1


def _require_int4(model: ModelT, layer: RefinableLayer) -> None:
    graph = model.subgraphs[0]
    operator = _operator(model, layer)
    if operator.inputs[1] == layer.quantized.weights:
        require_version(model, operator, _INT4_VERSIONS[layer.operator, _input_type(model, layer)])
        return
    for each in graph.operators:
        if operator.inputs[1] in each.outputs:
            require_version(model, each, _INT4_DEQUANTIZE)
