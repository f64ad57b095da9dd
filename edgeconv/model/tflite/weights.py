"""How a .tflite stores its weights, what share is quantized, and the likely recipe.

Constants of floats are read and written here too.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import (
    is_constant,
    malformed,
    operator_name,
    operators_of,
    read,
    text,
    type_names,
)
from edgeconv.model.tflite.operators import parameter_tensors, shape_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

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


class OwnConstants:
    """Reads and writes constants of a parsed model.

    Files store equal constants once: several tensors share a buffer, or several operators read one
    tensor. What is written for one operator never changes another.
    """

    def __init__(self, model: ModelT) -> None:
        self._model = model
        self._uses: Counter[int] = Counter(m.buffer for m in model.metadata or ())
        for graph in model.subgraphs:
            read = [i for operator in graph.operators for i in operator.inputs if i != -1]
            self._uses.update(graph.tensors[i].buffer for i in (*read, *graph.outputs))

    def is_shared(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether more than one operator, output or metadata entry reads the tensor's values."""
        return self._uses[graph.tensors[tensor].buffer] > 1

    def is_whole(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether the tensor is a dense float32 constant with all numbers of its shape."""
        constant = graph.tensors[tensor]
        if type_names()[constant.type] != "float32" or not is_constant(self._model, constant):
            return False
        stored_bytes = len(self._model.buffers[constant.buffer].data)
        return constant.sparsity is None and stored_bytes == _FLOAT32_BYTES * math.prod(
            shape_of(constant)
        )

    def read(self, graph: SubGraphT, tensor: int) -> NDArray[np.float32]:
        """The float32 values of a tensor that `is_whole`, in its shape; read-only."""
        import numpy as np

        constant = graph.tensors[tensor]
        values = np.frombuffer(bytes(self._model.buffers[constant.buffer].data), "<f4")
        return values.reshape(shape_of(constant))

    def write(
        self, graph: SubGraphT, operator: OperatorT, slot: int, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values, in the old shape, as input number `slot`."""
        from ai_edge_litert.schema_py_generated import BufferT

        if self.is_shared(graph, operator.inputs[slot]):
            self._uses[graph.tensors[operator.inputs[slot]].buffer] -= 1
            twin = copy.copy(graph.tensors[operator.inputs[slot]])
            self._model.buffers.append(BufferT())
            twin.buffer = len(self._model.buffers) - 1
            self._append(graph, operator, slot, twin)
        tensor = graph.tensors[operator.inputs[slot]]
        self._model.buffers[tensor.buffer].data = _stored(values)

    def write_bias(
        self, graph: SubGraphT, operator: OperatorT, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values (channels,) as input number 2, new or not."""
        from ai_edge_litert.schema_py_generated import BufferT, TensorT, TensorType

        if len(operator.inputs) > 2 and operator.inputs[2] != -1:
            self.write(graph, operator, 2, values)
            return
        self._model.buffers.append(BufferT(data=_stored(values)))
        bias = TensorT(
            name=f"{text(graph.tensors[operator.outputs[0]].name)}/bias",
            shape=list(values.shape),
            type=TensorType.FLOAT32,
            hasRank=True,
            buffer=len(self._model.buffers) - 1,
        )
        operator.inputs = [*operator.inputs[:2], -1]
        self._append(graph, operator, 2, bias)

    def _append(self, graph: SubGraphT, operator: OperatorT, slot: int, tensor: TensorT) -> None:
        """Append a tensor under a unique name, and make the operator read it."""
        taken = {text(each.name) for each in graph.tensors}
        name, number = text(tensor.name), 0
        while name in taken:
            number += 1
            name = f"{text(tensor.name)}_{number}"
        tensor.name = name
        graph.tensors.append(tensor)
        inputs = list(operator.inputs)
        inputs[slot] = len(graph.tensors) - 1
        operator.inputs = inputs
        self._uses[tensor.buffer] += 1


def _stored(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    import numpy as np

    return np.frombuffer(np.ascontiguousarray(values, "<f4").tobytes(), np.uint8)
