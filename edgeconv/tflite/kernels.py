"""The integers in the kernels of a .tflite: how many are zero, and how many different ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, text, type_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_edge_litert.schema_py_generated import ModelT, TensorT

# Where the kernel is among an operator's inputs. A depthwise kernel is never pruned.
_KERNEL_INPUTS = {"CONV_2D": 1, "FULLY_CONNECTED": 1, "TRANSPOSE_CONV": 1}


class Kernel(NamedTuple):
    """An 8-bit kernel: its tensor's name, and how many numbers it has of which kind."""

    name: str
    size: int
    zeros: int
    distinct: int


def int8_kernels(data: bytes) -> tuple[Kernel, ...]:
    """The 8-bit kernels of convolutions and dense layers, each once.

    Raises `InputRefused` for bytes that are no model.
    """
    import numpy as np

    model = parse(data, where="the model")
    found = {}
    for tensor in _kernel_tensors(model):
        values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.int8)
        distinct = len(np.unique(values))
        zeros = int(np.sum(values == 0))
        found[tensor.buffer] = Kernel(text(tensor.name), values.size, zeros, distinct)
    return tuple(found.values())


def _kernel_tensors(model: ModelT) -> Iterator[TensorT]:
    for graph in model.subgraphs:
        for operator in graph.operators:
            place = _KERNEL_INPUTS.get(operator_name(model, operator))
            if place is None or operator.inputs is None or len(operator.inputs) <= place:
                continue
            tensor = graph.tensors[operator.inputs[place]]
            if type_names()[tensor.type] == "int8" and is_constant(model, tensor):
                yield tensor


def zero_share(data: bytes) -> float:
    """The share of zeros in the 8-bit kernels; 0 where there are none."""
    kernels = int8_kernels(data)
    size = sum(kernel.size for kernel in kernels)
    return sum(kernel.zeros for kernel in kernels) / size if size else 0.0


def most_distinct(data: bytes) -> int:
    """The largest number of different integers that an 8-bit kernel has; 0 where there is none."""
    return max((kernel.distinct for kernel in int8_kernels(data)), default=0)
