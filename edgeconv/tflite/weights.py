"""How a .tflite stores its weights, and how much of them is really quantised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import is_constant, malformed, type_names
from edgeconv.tflite.uses import parameter_tensors

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, TensorT

_FLOAT32_BYTES = 4
_FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}
_QUANTIZED_BITS = {"int2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_FLOAT8_BITS = {"float8_e4m3fn": 8, "float8_e5m2": 8}
# Integers of 32 bits or more are biases, shapes and indices, with a scale or without.
_STORED_BITS = _FLOAT_BITS | _QUANTIZED_BITS | _FLOAT8_BITS | {"int16": 16}


class WeightBytes(NamedTuple):
    """Bytes of a model's weights: as stored, and by kind as the float32 they stand for."""

    stored_bytes: int = 0
    all_float32_bytes: int = 0
    quantized_float32_bytes: int = 0
    float16_float32_bytes: int = 0

    @property
    def quantized_share(self) -> float:
        """The fraction stored as integers of 8 bits or less; 0 where there are no weights."""
        return self._share(self.quantized_float32_bytes)

    @property
    def float16_share(self) -> float:
        """The fraction stored as float16; 0 where there are no weights."""
        return self._share(self.float16_float32_bytes)

    def _share(self, part_bytes: int) -> float:
        return part_bytes / self.all_float32_bytes if self.all_float32_bytes else 0.0


def weigh(model: ModelT, *, where: str) -> WeightBytes:
    """Add up every constant that is a float weight or stands for one.

    A buffer that several tensors share counts once. Raises `InputRefused` where a tensor
    has fewer bytes than its shape needs.
    """
    total = WeightBytes()
    seen = set()
    for tensor in _weight_tensors(model):
        if tensor.buffer not in seen:
            seen.add(tensor.buffer)
            one = _weigh_tensor(model, tensor, where)
            total = WeightBytes(*(a + b for a, b in zip(total, one, strict=True)))
    return total


def is_quantized_tensor(tensor: TensorT) -> bool:
    """Whether the tensor holds integers that stand for real numbers.

    A float tensor with quantisation parameters, as left by some trainers, is not.
    """
    quantization = tensor.quantization
    if quantization is None or type_names()[tensor.type] in _FLOAT_BITS:
        return False
    has_scale = quantization.scale is not None and len(quantization.scale) > 0
    return has_scale or quantization.details is not None


def _weight_tensors(model: ModelT) -> list[TensorT]:
    found = []
    for graph in model.subgraphs:
        parameters = {i for tensor in graph.tensors for i in parameter_tensors(tensor)}
        found += [
            tensor
            for index, tensor in enumerate(graph.tensors)
            if index not in parameters and is_constant(model, tensor) and _stands_for_float(tensor)
        ]
    return found


def _stands_for_float(tensor: TensorT) -> bool:
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
