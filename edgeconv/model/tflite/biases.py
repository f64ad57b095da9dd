"""Integer biases: which are at the limit of their type, and weight scales at which they fit.

A bias is stored in units of the input's scale times the weights'. Where all weights of a channel
are nearly zero, as in a network of which some channels died in training, the unit is so small that
the bias does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.model.tflite.edit import store_values
from edgeconv.model.tflite.flatbuffer import (
    is_constant,
    operator_name,
    operators_of,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# What fits with room for the sum that is added, by the type of the bias. XNNPACK multiplies sums of
# 4-bit weights by 16 in 32 bits. litert-quantizer cuts the bias of 16-bit activations at 32 bits,
# and there is no faster kernel that would need it smaller.
LARGEST_BIAS = {"int32": 2.0**26, "int64": 2.0**30}
# What a bias is cut off at. The kernels of 16-bit activations multiply numbers of at most 48 bits.
BIAS_LIMITS = {"int32": 2**31 - 1, "int64": 2**47 - 1}
_LARGEST_WEIGHT = 127
# The inputs that are the activations, the weights and the bias.
SLOTS = {
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}


def clipped_biases(data: bytes) -> tuple[str, ...]:
    """The names of the integer biases that have a value at the limit of their type, sorted.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    return tuple(
        sorted(
            {
                text(tensor.name)
                for graph in model.subgraphs
                for tensor in graph.tensors
                if _is_integer_bias(model, tensor) and _is_clipped(model, tensor)
            }
        )
    )


def with_fitting_biases(data: bytes, float_data: bytes) -> tuple[bytes, int]:
    """A quantized model with weight scales at which every bias fits, and how many were widened.

    `float_data` is the float model that it was made from, of the same operators with weights in
    the same order; another one changes nothing. Raises `InputRefused` for bytes that are not a
    model.
    """
    import numpy as np

    model = read(data, where="the quantized model")
    if not any(
        _is_integer_bias(model, tensor)
        and np.any(abs(_integers(model, tensor)) > LARGEST_BIAS[type_of(tensor)])
        for graph in model.subgraphs
        for tensor in graph.tensors
    ):
        return data, 0
    model = parse(data, where="the quantized model")
    original = read(float_data, where="the float model")
    graphs = zip(model.subgraphs, original.subgraphs, strict=False)
    count = sum(_widen(model, graph, original, own) for graph, own in graphs)
    return (serialize(model), count) if count else (data, 0)


def sum_units(data: bytes, scales: Mapping[str, float]) -> dict[str, float]:
    """What one unit of each weighted layer's integer sum stands for, by its output's name.

    At least: with the largest of its weights' scales, and one at which its biases fit. `scales`
    are those of 8-bit activations, by name; layers whose input is not among them are left out.
    Raises `InputRefused` for bytes that are not a model.
    """
    import numpy as np

    model = read(data, where="the model")
    units: dict[str, float] = {}
    for graph, operator in operators_of(model):
        slots = SLOTS.get(operator_name(model, operator))
        if slots is None:
            continue
        source, weights, bias = (_input(graph, operator, slot) for slot in slots)
        if source is None or weights is None or text(source.name) not in scales:
            continue
        largest = [
            float(np.max(np.abs(_floats(model, tensor)), initial=0.0))
            if tensor is not None and _is_float_constant(model, tensor)
            else 0.0
            for tensor in (weights, bias)
        ]
        unit = max(
            scales[text(source.name)] * largest[0] / _LARGEST_WEIGHT,
            largest[1] / LARGEST_BIAS["int32"],
        )
        units[text(graph.tensors[operator.outputs[0]].name)] = unit
    return units


def _input(graph: SubGraphT, operator: OperatorT, slot: int) -> TensorT | None:
    index = operator.inputs[slot] if slot < len(operator.inputs) else -1
    return None if index == -1 else graph.tensors[index]


class _BiasedLayer(NamedTuple):
    """An operator with weights and a bias: the tensors of its input, weights and bias."""

    operator: str
    source: int
    weights: int
    bias: int


def _widen(model: ModelT, graph: SubGraphT, original: ModelT, float_graph: SubGraphT) -> int:
    """Widen the scales of a graph's weights; returns how many."""
    import numpy as np

    layers = list(_biased_layers(model, graph))
    own = list(_biased_layers(original, float_graph))
    if [layer.operator for layer in layers] != [layer.operator for layer in own]:
        return 0
    pairs = [
        (layer, _floats(original, float_graph.tensors[float_layer.bias]))
        for layer, float_layer in zip(layers, own, strict=True)
        if _is_integer_layer(model, graph, layer)
        and _is_float_constant(original, float_graph.tensors[float_layer.bias])
    ]
    # Several operators may read the same weights.
    least: dict[int, Floats] = {}
    for layer, bias in pairs:
        fitting = _fitting_scales(graph, layer, bias)
        least[layer.weights] = np.maximum(least.get(layer.weights, fitting), fitting)
    counts = {index: _rescale(model, graph.tensors[index], s) for index, s in least.items()}
    for layer, bias in pairs:
        if counts[layer.weights]:
            _store_bias(model, graph, layer, bias)
    return sum(counts.values())


def _biased_layers(model: ModelT, graph: SubGraphT) -> Iterator[_BiasedLayer]:
    for operator in graph.operators:
        name = operator_name(model, operator)
        slots = SLOTS.get(name)
        if slots and len(operator.inputs) > slots[2] and operator.inputs[slots[2]] != -1:
            yield _BiasedLayer(name, *(operator.inputs[slot] for slot in slots))


def _is_integer_layer(model: ModelT, graph: SubGraphT, layer: _BiasedLayer) -> bool:
    source, weights = graph.tensors[layer.source], graph.tensors[layer.weights]
    return (
        _is_integer_bias(model, graph.tensors[layer.bias])
        and len(scales_of(source)) == 1
        and type_of(weights) == "int8"
        and is_constant(model, weights)
        and len(scales_of(weights)) > 0
    )


def _is_integer_bias(model: ModelT, tensor: TensorT) -> bool:
    """Whether it is a constant of 32 or 64 bits with a scale; shapes and indices have none."""
    is_integer = type_of(tensor) in BIAS_LIMITS and len(scales_of(tensor)) > 0
    return is_integer and is_constant(model, tensor)


def _is_float_constant(model: ModelT, tensor: TensorT) -> bool:
    return type_of(tensor) == "float32" and is_constant(model, tensor)


def _is_clipped(model: ModelT, tensor: TensorT) -> bool:
    import numpy as np

    values = _integers(model, tensor)
    # litert-quantizer stores biases that it cut at 32 bits in 64.
    at_32_bits = (values == BIAS_LIMITS["int32"]) | (values == -BIAS_LIMITS["int32"])
    beyond = abs(values) >= BIAS_LIMITS[type_of(tensor)]
    return bool(np.any(at_32_bits | beyond))


def _integers(model: ModelT, tensor: TensorT) -> Floats:
    """The stored numbers, as floats: the magnitude of the least integer is not an integer."""
    import numpy as np

    raw = bytes(model.buffers[tensor.buffer].data)
    return np.frombuffer(raw, type_of(tensor)).astype(np.float64)


def _floats(model: ModelT, tensor: TensorT) -> Floats:
    import numpy as np

    return np.frombuffer(bytes(model.buffers[tensor.buffer].data), "<f4").astype(np.float64)


def _fitting_scales(graph: SubGraphT, layer: _BiasedLayer, bias: Floats) -> Floats:
    """The least scales of the weights at which the bias fits: (channels,), or (1,) for one."""
    import numpy as np

    largest = LARGEST_BIAS[type_of(graph.tensors[layer.bias])]
    least = np.abs(bias) / (scales_of(graph.tensors[layer.source])[0] * largest)
    return least.max(keepdims=True) if len(scales_of(graph.tensors[layer.weights])) == 1 else least


def _rescale(model: ModelT, weights: TensorT, least: Floats) -> int:
    """Give weights at least these scales; returns how many scales that changes."""
    import numpy as np

    scales = np.array(scales_of(weights), np.float32)
    # Rounded up, so that the bias still fits.
    above = np.nextafter(least.astype(np.float32), np.float32(np.inf))
    wide = np.where(least > scales, above, scales)
    if np.array_equal(wide, scales):
        return 0
    shape = shape_of(weights)
    spread = [1] * len(shape)
    if len(scales) > 1:
        spread[weights.quantization.quantizedDimension] = -1
    stored = np.frombuffer(bytes(model.buffers[weights.buffer].data), np.int8).reshape(shape)
    factors = (scales.astype(np.float64) / wide).reshape(spread)
    store_values(model, weights, np.rint(stored * factors).astype(np.int8))
    weights.quantization.scale = wide
    return int(np.sum(wide != scales))


def _store_bias(model: ModelT, graph: SubGraphT, layer: _BiasedLayer, bias: Floats) -> None:
    import numpy as np

    tensor: Any = graph.tensors[layer.bias]
    scales = np.array(scales_of(graph.tensors[layer.weights]), np.float32)
    units = np.float32(scales_of(graph.tensors[layer.source])[0]) * scales
    numbers = np.rint(bias / units.astype(np.float64))
    store_values(model, tensor, numbers.astype(type_of(tensor)))
    tensor.quantization.scale = units
