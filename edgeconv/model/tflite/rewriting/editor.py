"""Adds tensors and operators to one float graph, and finds who reads and writes a tensor."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.edit import code_of, require_version, store_values
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, text, type_names
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import shape_of, type_of, use_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import ArrayLike, NDArray

    from edgeconv.model.tflite.kernels import IntegerType

# The options' class of an operator, where it is not the operator's name in camel case.
_OPTIONS = {
    "MAXIMUM": "MaximumMinimum",
    "MINIMUM": "MaximumMinimum",
    "REDUCE_MAX": "Reducer",
    "SUM": "Reducer",
    "TOPK_V2": "TopKV2",
}
# They have none.
_WITHOUT_OPTIONS = frozenset({"ELU", "FLOOR", "LOG", "LOGISTIC", "RELU", "ROUND", "RSQRT", "SQRT"})


class GraphEditor:
    """A parsed model's graph that is being changed.

    `ranges` has the least and greatest value of its float tensors by name, `integers` are those
    that its activations are to become.
    """

    def __init__(
        self,
        model: ModelT,
        graph: SubGraphT,
        ranges: Mapping[str, tuple[float, float]],
        integers: IntegerType,
    ) -> None:
        self.model = model
        self.graph = graph
        self.ranges = ranges
        self.integers = integers
        self._names = {text(tensor.name) for tensor in graph.tensors}

    def name(self, operator: OperatorT) -> str:
        """The operator's name, such as "NEG"."""
        return operator_name(self.model, operator)

    def tensor(self, index: int) -> TensorT:
        """A tensor of the graph."""
        return self.graph.tensors[index]

    def is_float(self, index: int) -> bool:
        """Whether a tensor holds float32."""
        return index != -1 and type_of(self.tensor(index)) == "float32"

    def is_constant(self, index: int) -> bool:
        """Whether a tensor's values are in the file."""
        return index != -1 and is_constant(self.model, self.tensor(index))

    def shape(self, index: int) -> tuple[int, ...]:
        """A tensor's shape, with 1 for an open dimension."""
        return shape_of(self.tensor(index))

    def is_open(self, index: int, axis: int) -> bool:
        """Whether a dimension of a tensor is open."""
        signs = self.tensor(index).shapeSignature
        return signs is not None and len(signs) > 0 and int(signs[axis]) == -1

    def value(self, index: int) -> NDArray[Any] | None:
        """The values of a constant of numbers in its shape, None for any other tensor."""
        import numpy as np

        tensor = self.tensor(index) if index != -1 else None
        kinds = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "bool": "?"}
        if tensor is None or not self.is_constant(index) or type_of(tensor) not in kinds:
            return None
        if tensor.sparsity is not None:
            return None
        data = bytes(self.model.buffers[tensor.buffer].data)
        return np.frombuffer(data, kinds[type_of(tensor)]).reshape(shape_of(tensor))

    def scalar(self, index: int) -> float | None:
        """The one float that a constant has, None for any other tensor."""
        values = self.value(index)
        if values is None or values.size != 1 or not self.is_float(index):
            return None
        return float(values.reshape(-1)[0])

    def range(self, index: int) -> tuple[float, float] | None:
        """The least and greatest value of a tensor, if known."""
        values = self.value(index)
        if values is not None and values.size:
            return float(values.min()), float(values.max())
        return self.ranges.get(text(self.tensor(index).name))

    def readers(self, index: int) -> list[OperatorT]:
        """The operators that read a tensor."""
        return [operator for operator in self.graph.operators if index in operator.inputs]

    def writer(self, index: int) -> OperatorT | None:
        """The operator that makes a tensor."""
        return next((o for o in self.graph.operators if index in o.outputs), None)

    def is_read_once(self, index: int) -> bool:
        """Whether one operator reads a tensor, and no caller."""
        return len(self.readers(index)) == 1 and not self.is_end(index)

    def is_end(self, index: int) -> bool:
        """Whether a tensor is an input or output of the graph."""
        return index in self.graph.outputs or index in self.graph.inputs

    def like(self, index: int, suffix: str, shape: Sequence[int] | None = None) -> int:
        """A new float32 tensor of a tensor's shape, or of another with the same open batch."""
        twin = copy.copy(self.tensor(index))
        twin.name, twin.buffer, twin.quantization = self._unique(index, suffix), 0, None
        if shape is not None:
            is_open = len(self.shape(index)) > 0 and self.is_open(index, 0)
            twin.shape = list(shape)
            twin.shapeSignature = [-1, *list(shape)[1:]] if is_open and len(shape) else None
        self.graph.tensors.append(twin)
        return len(self.graph.tensors) - 1

    def _unique(self, index: int, suffix: str) -> str:
        name = base = f"{text(self.tensor(index).name)}/{suffix}"
        number = 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def rename(self, index: int, suffix: str) -> None:
        """Give a tensor another name, since it has other values."""
        self.tensor(index).name = self._unique(index, suffix)

    def constant(self, index: int, suffix: str, values: ArrayLike, kind: str = "float32") -> int:
        """A new constant, named after a tensor."""
        import numpy as np
        from ai_edge_litert.schema_py_generated import TensorT

        array = np.asarray(values, kind)
        code = next(code for code, name in type_names().items() if name == kind)
        tensor = TensorT(
            name=self._unique(index, suffix), shape=list(array.shape), type=code, hasRank=True
        )
        self.graph.tensors.append(tensor)
        tensor.buffer = 0
        store_values(self.model, tensor, array)
        return len(self.graph.tensors) - 1

    def set_constant(self, operator: OperatorT, slot: int, values: NDArray[Any]) -> None:
        """Give one operator other values of a constant, in the same shape; others keep theirs."""
        index = operator.inputs[slot]
        readers = self.readers(index)
        uses = sum(list(each.inputs).count(index) for each in readers)
        if uses == 1 and not self.is_end(index):
            store_values(self.model, self.tensor(index), values.astype("<f4"))
            return
        number = self.constant(index, "changed", values)
        operator.inputs = [
            number if position == slot else each for position, each in enumerate(operator.inputs)
        ]

    def operator(
        self, name: str, inputs: Sequence[int], outputs: int | Sequence[int], **options: Any
    ) -> OperatorT:
        """A new operator, which is in no list yet, of the version that it needs."""
        from ai_edge_litert import schema_py_generated as schema

        operator = schema.OperatorT(
            opcodeIndex=code_of(self.model, getattr(schema.BuiltinOperator, name)),
            inputs=list(inputs),
            outputs=[outputs] if isinstance(outputs, int) else list(outputs),
        )
        if name not in _WITHOUT_OPTIONS:
            camel = _OPTIONS.get(name) or name.title().replace("_", "")
            operator.builtinOptions = getattr(schema, f"{camel}OptionsT")(**options)
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{camel}Options")
        self.settle_version(operator)
        return operator

    def settle_version(self, operator: OperatorT) -> None:
        """Declare the version that the operator needs."""
        needed = needed_version(use_of(self.model, self.graph, operator))
        if needed is not None:
            require_version(self.model, operator, needed)

    def turn_into(self, operator: OperatorT, other: OperatorT) -> None:
        """Make an operator another one, in its place."""
        operator.opcodeIndex = other.opcodeIndex
        operator.inputs, operator.outputs = other.inputs, other.outputs
        operator.builtinOptions = other.builtinOptions
        operator.builtinOptionsType = other.builtinOptionsType


def activation_of(operator: OperatorT) -> int:
    """The activation that the operator's kernel applies to its result, 0 for none."""
    return int(getattr(operator.builtinOptions, "fusedActivationFunction", 0) or 0)
