"""An operator in a graph with its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.tflite.flatbuffer import operator_name, type_names

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT


class OperatorUse(NamedTuple):
    """One operator in a graph with its tensors, None for a missing optional one."""

    name: str
    inputs: tuple[TensorT | None, ...]
    outputs: tuple[TensorT | None, ...]
    options: Any

    def input(self, index: int) -> TensorT | None:
        """An input, None where there is none."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def output(self) -> TensorT | None:
        """The first output, None where there is none."""
        return self.outputs[0] if self.outputs else None

    def input_type(self, index: int) -> str:
        """The type of an input, "" where there is none."""
        return type_of(self.input(index))

    @property
    def output_type(self) -> str:
        """The type of the first output, "" where there is none."""
        return type_of(self.output)

    def rank(self, index: int) -> int:
        """How many dimensions an input has, 0 where there is none."""
        return len(shape_of(self.input(index)))

    def option(self, name: str) -> Any:
        """An option by the schema's name; None where the operator does not have it."""
        return getattr(self.options, name, None)

    def is_hybrid(self, weights: int) -> bool:
        """Whether it computes on floats with int8 weights, which are input number `weights`."""
        floats = self.input_type(0) == self.output_type == "float32"
        return floats and self.input_type(weights) == "int8"


def use_of(model: ModelT, graph: SubGraphT, operator: OperatorT) -> OperatorUse:
    """`operator` of `graph` with its tensors."""

    def tensors(indices: list[int]) -> tuple[TensorT | None, ...]:
        return tuple(None if index == -1 else graph.tensors[index] for index in indices)

    return OperatorUse(
        operator_name(model, operator),
        tensors(operator.inputs),
        tensors(operator.outputs),
        operator.builtinOptions,
    )


def type_of(tensor: TensorT | None) -> str:
    """The tensor's type by its numpy name, "" for None."""
    return "" if tensor is None else type_names()[tensor.type]


def shape_of(tensor: TensorT | None) -> tuple[int, ...]:
    """The tensor's shape with 1 for a dynamic dimension, empty for None."""
    return () if tensor is None or tensor.shape is None else tuple(int(d) for d in tensor.shape)


def scales_of(tensor: TensorT | None) -> tuple[float, ...]:
    """The tensor's quantization scales, empty where it has none."""
    quantization = None if tensor is None else tensor.quantization
    if quantization is None or quantization.scale is None:
        return ()
    return tuple(float(scale) for scale in quantization.scale)


def parameter_tensors(tensor: TensorT) -> frozenset[int]:
    """The tensors that hold the scales and zero points of weights quantized in blocks."""
    details: Any = None if tensor.quantization is None else tensor.quantization.details
    if not hasattr(details, "scales"):
        return frozenset()
    return frozenset({details.scales, details.zeroPoints} - {-1})


def has_channel_scales(tensor: TensorT | None) -> bool:
    """Whether a tensor is quantized with more than one scale."""
    return len(scales_of(tensor)) > 1
