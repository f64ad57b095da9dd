"""What a .tflite stores: tensors by name, bounds and scales, 8-bit kernels, vocabularies."""

from __future__ import annotations

import itertools
import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import (
    entry_subgraphs,
    is_constant,
    operator_name,
    operators_of,
    parse,
    read,
    text,
    type_names,
)
from edgeconv.tflite.summary import spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT, TensorT

    from edgeconv.types import TensorSpec

# The schema's activation functions with a bound, and the largest magnitude that each gives.
_BOUNDS = {"RELU6": 6.0, "RELU_N1_TO_1": 1.0}
# The kernel's number among an operator's inputs. A depthwise kernel is never pruned.
_KERNEL_INPUTS = {"CONV_2D": 1, "FULLY_CONNECTED": 1, "TRANSPOSE_CONV": 1}
_COUNT = struct.Struct("<i")


def tensor_specs(data: bytes, *, where: str) -> dict[str, TensorSpec]:
    """Every tensor of the graphs that a caller can run, weights included, by name.

    Duplicate names are numbered: "name", "name (2)". Raises `InputRefused`, which names the file as
    `where`, for bytes that are not a model.
    """
    model = parse(data, where=where)
    specs: dict[str, TensorSpec] = {}
    # The last number of each name: many tensors of one name must not take quadratic time.
    numbers: dict[str, int] = {}
    for index in entry_subgraphs(model):
        for tensor in model.subgraphs[index].tensors:
            name = unique = text(tensor.name)
            while unique in specs:
                numbers[name] = numbers.get(name, 1) + 1
                unique = f"{name} ({numbers[name]})"
            specs[unique] = spec_of(unique, tensor)
    return specs


def layers_of_graphs(data: bytes, *, where: str) -> dict[str, frozenset[str]]:
    """The outputs of the operators of every graph, by the graph's name.

    A graph without a name is called "main", as viewers do. Raises `InputRefused`.
    """
    model = parse(data, where=where)
    layers: dict[str, frozenset[str]] = {}
    for graph in model.subgraphs:
        outputs = {i for operator in graph.operators for i in operator.outputs if i != -1}
        names = frozenset(text(graph.tensors[i].name) for i in outputs)
        key = text(graph.name) or "main"
        layers[key] = layers.get(key, frozenset()) | names
    return layers


def activation_bounds(data: bytes) -> dict[str, float]:
    """The bound of every tensor that RELU6 or RELU_N1_TO_1 gives, fused or not, by name."""
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    codes = {getattr(ActivationFunctionType, name): bound for name, bound in _BOUNDS.items()}
    model = read(data, where="the model")
    bounds: dict[str, float] = {}
    for graph, operator in operators_of(model):
        fused = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
        bound = codes.get(fused) or _BOUNDS.get(operator_name(model, operator))
        if bound:
            bounds |= {text(graph.tensors[i].name): bound for i in operator.outputs}
    return bounds


def largest_scales(data: bytes) -> dict[str, float]:
    """The largest scale of every quantized tensor, by name; infinite where one is not finite."""
    scales: dict[str, float] = {}
    for graph in read(data, where="the model").subgraphs:
        for tensor in graph.tensors:
            own = None if tensor.quantization is None else tensor.quantization.scale
            if own is not None and len(own):
                finite = all(math.isfinite(scale) for scale in own)
                scales[text(tensor.name)] = float(max(own)) if finite else math.inf
    return scales


class InnerRange(NamedTuple):
    """A tensor between two operators: its name, the values it can hold, and their step."""

    name: str
    low: float
    high: float
    step: float


def inner_ranges(data: bytes) -> list[InnerRange]:
    """The int8 activations that operators compute for others, in the order of the file.

    What goes to the model's outputs is left out. Raises `InputRefused` for bytes that are not a
    model.
    """
    model = parse(data, where="the model")
    ranges = []
    for graph in model.subgraphs:
        ends = _before_outputs(model, graph)
        for operator in graph.operators:
            for index in set(operator.outputs) - ends - {-1}:
                tensor = graph.tensors[index]
                spec = spec_of(text(tensor.name), tensor)
                if spec.dtype == "int8" and len(spec.scale) == 1:
                    step, zero = spec.scale[0], spec.zero_point[0]
                    low, high = (-128 - zero) * step, (127 - zero) * step
                    ranges.append(InnerRange(spec.name, low, high, step))
    return ranges


def _before_outputs(model: ModelT, graph: SubGraphT) -> set[int]:
    """The outputs of a graph, and what a DEQUANTIZE makes one of."""
    ends = set(graph.outputs)
    return ends | {
        index
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE" and ends.intersection(operator.outputs)
        for index in operator.inputs
    }


class Kernel(NamedTuple):
    """An 8-bit kernel: its tensor's name, and how many numbers, zeros and different numbers."""

    name: str
    size: int
    zeros: int
    distinct: int


def int8_kernels(data: bytes) -> tuple[Kernel, ...]:
    """The 8-bit kernels of convolutions and dense layers, each once.

    Raises `InputRefused` for bytes that are not a model.
    """
    import numpy as np

    model = parse(data, where="the model")
    kernels = {}
    for tensor in _kernel_tensors(model):
        values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.int8)
        distinct = len(np.unique(values))
        zeros = int(np.sum(values == 0))
        kernels[tensor.buffer] = Kernel(text(tensor.name), values.size, zeros, distinct)
    return tuple(kernels.values())


def _kernel_tensors(model: ModelT) -> Iterator[TensorT]:
    for graph, operator in operators_of(model):
        slot = _KERNEL_INPUTS.get(operator_name(model, operator))
        if slot is not None and len(operator.inputs) > slot:
            tensor = graph.tensors[operator.inputs[slot]]
            if type_names()[tensor.type] == "int8" and is_constant(model, tensor):
                yield tensor


def zero_share(data: bytes) -> float:
    """The fraction of zeros in the 8-bit kernels; 0 without kernels."""
    kernels = int8_kernels(data)
    size = sum(kernel.size for kernel in kernels)
    return sum(kernel.zeros for kernel in kernels) / size if size else 0.0


def most_distinct(data: bytes) -> int:
    """The largest number of different integers in an 8-bit kernel; 0 without kernels."""
    return max((kernel.distinct for kernel in int8_kernels(data)), default=0)


def vocabularies(data: bytes, *, where: str) -> tuple[tuple[bytes, ...], ...]:
    """The strings of every constant tensor of strings, in the order of the file.

    These are the keys and the string values of its tables. A malformed tensor counts as empty.
    Raises `InputRefused`, which names the file as `where`, for bytes that are not a model.
    """
    model = read(data, where=where)
    tensors = (
        _strings(bytes(model.buffers[tensor.buffer].data))
        for graph in model.subgraphs
        for tensor in graph.tensors
        if type_names()[tensor.type] == "string" and is_constant(model, tensor)
    )
    return tuple(strings for strings in tensors if strings)


def _strings(buffer: bytes) -> tuple[bytes, ...]:
    """A buffer of strings: their number, where each begins and the last ends, and the bytes."""
    if len(buffer) < _COUNT.size:
        return ()
    (count,) = _COUNT.unpack_from(buffer)
    if count < 1 or (count + 2) * _COUNT.size > len(buffer):
        return ()
    offsets = struct.unpack_from(f"<{count + 1}i", buffer, _COUNT.size)
    return tuple(buffer[start:end] for start, end in itertools.pairwise(offsets))
