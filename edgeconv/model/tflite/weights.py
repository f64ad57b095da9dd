"""How a .tflite stores its weights, the share that is quantized, and the likely recipe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import (
    is_constant,
    malformed,
    operator_name,
    operators_of,
    read,
    type_names,
)
from edgeconv.model.tflite.operators import parameter_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, TensorT

    from edgeconv.types import RecipeName

_FLOAT32_BYTES = 4
_FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}
_QUANTIZED_BITS = {"int2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_FLOAT8_BITS = {"float8_e4m3fn": 8, "float8_e5m2": 8}
_FOUR_BITS = frozenset({"int4", "uint4", "int2"})
# Integers of 32 bits or more are biases, shapes and indices, with a scale or without.
_STORED_BITS = _FLOAT_BITS | _QUANTIZED_BITS | _FLOAT8_BITS | {"int16": 16}


class WeightBytes(NamedTuple):
    """Bytes of a model's weights: as stored, and as float32 in all, quantized and of float16."""

    stored_bytes: int = 0
    all_float32_bytes: int = 0
    quantized_float32_bytes: int = 0
    float16_float32_bytes: int = 0

    @property
    def quantized_share(self) -> float:
        """The fraction stored as integers of 8 bits or less; 0 without weights."""
        return self._share(self.quantized_float32_bytes)

    @property
    def float16_share(self) -> float:
        """The fraction stored as float16; 0 without weights."""
        return self._share(self.float16_float32_bytes)

    def _share(self, part_bytes: int) -> float:
        return part_bytes / self.all_float32_bytes if self.all_float32_bytes else 0.0


def weigh(model: ModelT, *, where: str) -> WeightBytes:
    """The sum of every constant that is a float weight or a quantized one.

    A shared buffer counts once. Raises `InputRefused` where a tensor has fewer bytes than its shape
    needs.
    """
    tensors = {tensor.buffer: tensor for tensor in reversed(_weight_tensors(model))}
    sizes = [WeightBytes(), *(_weigh_tensor(model, each, where) for each in tensors.values())]
    return WeightBytes(*map(sum, zip(*sizes, strict=True)))


def is_quantized_tensor(tensor: TensorT) -> bool:
    """Whether the tensor has quantized integers. Some float tensors have parameters too."""
    quantization = tensor.quantization
    if quantization is None or type_names()[tensor.type] in _FLOAT_BITS:
        return False
    has_scale = quantization.scale is not None and len(quantization.scale) > 0
    return has_scale or quantization.details is not None


def _weight_tensors(model: ModelT) -> list[TensorT]:
    weights = []
    for graph in model.subgraphs:
        parameters = {i for tensor in graph.tensors for i in parameter_tensors(tensor)}
        weights += [
            tensor
            for index, tensor in enumerate(graph.tensors)
            if index not in parameters and is_constant(model, tensor) and _is_weight(tensor)
        ]
    return weights


def _is_weight(tensor: TensorT) -> bool:
    name = type_names()[tensor.type]
    if name in _FLOAT_BITS or name in _FLOAT8_BITS:
        return True
    return name in _STORED_BITS and is_quantized_tensor(tensor)


def _weigh_tensor(model: ModelT, tensor: TensorT, where: str) -> WeightBytes:
    name = type_names()[tensor.type]
    stored_bytes = len(model.buffers[tensor.buffer].data)
    elements = math.prod(int(d) for d in tensor.shape) if tensor.shape is not None else 1
    if tensor.sparsity is None and stored_bytes * 8 < elements * _STORED_BITS[name]:
        raise malformed(where, f"a tensor of {elements} {name} has only {stored_bytes} bytes")
    float32_bytes = max(elements, 0) * _FLOAT32_BYTES
    return WeightBytes(
        stored_bytes,
        float32_bytes,
        float32_bytes if name in _QUANTIZED_BITS else 0,
        float32_bytes if name == "float16" else 0,
    )


def likely_recipe(data: bytes, *, where: str) -> RecipeName:
    """The recipe that gives weights and activations of the types in this file.

    uint8 counts as int8. Raises `InputRefused`, which names the file as `where`, for bytes that
    are not a model.
    """
    model = read(data, where=where)
    activations = set(_quantized_types(model, constants=False))
    weights = set(_quantized_types(model, constants=True))
    if "int16" in activations:
        return "int16x8"
    if activations & {"int8", "uint8"}:
        return "int8x4" if weights & _FOUR_BITS else "int8"
    if not weights - {"int32", "int64"}:
        return "float16" if weigh(model, where=where).float16_share else "float32"
    if not _are_unpacked(model):
        return "dynamic"
    return "weight-only-int4" if weights & _FOUR_BITS else "weight-only-int8"


def _quantized_types(model: ModelT, *, constants: bool) -> Iterator[str]:
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if is_quantized_tensor(tensor) and is_constant(model, tensor) == constants:
                yield type_names()[tensor.type]


def _are_unpacked(model: ModelT) -> bool:
    """Whether the weights are dequantized before they are used."""
    return any(
        is_constant(model, graph.tensors[i]) and is_quantized_tensor(graph.tensors[i])
        for graph, operator in operators_of(model)
        if operator_name(model, operator) == "DEQUANTIZE"
        for i in operator.inputs
        if i != -1
    )
