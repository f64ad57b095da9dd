"""Layers that may overflow in the 16-bit floats of a GPU, by what the calibration samples show.

A GPU's delegate computes in 16-bit floats unless an app forbids it. SwiftShader has none, so that
running there does not show it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from edgeconv.model.tflite.cut import with_fixed_shapes
from edgeconv.model.tflite.edit import code_of, store_values
from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, serialize, text
from edgeconv.model.tflite.layer_names import short_names
from edgeconv.model.tflite.operators import shape_of, type_of
from edgeconv.quantize.worker import GraphFile, calibrated, settle_process
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

    from edgeconv.quantize.calibrate import CalibratedGraph

LARGEST = 65504.0
_MOST_BATCHES = 64


class HalfFloatJob(msgspec.Struct, frozen=True, kw_only=True):
    """The float graph to look at, with samples for its signatures."""

    graph: GraphFile


class LayerMagnitude(msgspec.Struct, frozen=True, kw_only=True):
    """The largest absolute value of a layer, and what its partial sums cannot exceed; 0 for none.

    Both are over the calibration samples.
    """

    layer: str
    operator: str
    largest: float
    largest_sum: float

    @property
    def overflows(self) -> bool:
        """Whether 16 bits may not hold it."""
        return max(self.largest, self.largest_sum) > LARGEST


class LayerMagnitudes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `HalfFloatJob`, in the order of the graph."""

    layers: tuple[LayerMagnitude, ...]


def layer_magnitudes(job: HalfFloatJob) -> LayerMagnitudes:
    """The magnitudes of all layers; runs in a child. Raises `ToolFailed`."""
    settle_process()
    return LayerMagnitudes(layers=tuple(magnitudes(calibrated(job.graph))))


def magnitudes(graph: CalibratedGraph) -> list[LayerMagnitude]:
    """Those of a graph, over up to 64 batches of each signature. Raises `ToolFailed`."""
    every: list[LayerMagnitude] = []
    for key, feed in graph.feeds.items():
        data, layers = with_magnitudes(with_fixed_shapes(graph.model, key, feed.shapes))
        model = InProcessModel(open_interpreter(data, threads=graph.threads))
        largest = dict.fromkeys((n for each in layers for n in (each.values, each.sums)), 0.0)
        for batch in feed.take(range(min(len(feed), _MOST_BATCHES))):
            for name, values in model.invoke(batch).items():
                largest[name] = max(largest[name], float(np.abs(values).max(initial=0.0)))
        every += [
            LayerMagnitude(
                layer=each.layer,
                operator=each.operator,
                largest=largest[each.values],
                largest_sum=largest[each.sums] if each.sums else 0.0,
            )
            for each in layers
        ]
    return every


def overflow_warning(layers: tuple[LayerMagnitude, ...]) -> str:
    """Which layers may overflow, the first few by name; "" where none does."""
    large = [each for each in layers if each.overflows]
    if not large:
        return ""
    parts = [
        f"{each.layer} ({each.operator}: values to {each.largest:,.0f}, "
        f"sums to {max(each.largest_sum, each.largest):,.0f})"
        for each in large[:3]
    ]
    more = f" and {len(large) - 3} more" if len(large) > 3 else ""
    return (
        f"in the 16-bit floats of a GPU, which end at {LARGEST:,.0f}, {', '.join(parts)}{more} may "
        "overflow; SwiftShader has none and does not show it: demand 32-bit floats in the app"
    )


_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_REDUCING = frozenset({"SUM", "MEAN"})


class LayerOutputs(NamedTuple):
    """A layer: its operator, the output with its values, and that with the sums, "" without any.

    A sum is that of the absolute values of all that the layer adds up: no partial sum is larger.
    """

    layer: str
    operator: str
    values: str
    sums: str


def with_magnitudes(data: bytes) -> tuple[bytes, tuple[LayerOutputs, ...]]:
    """The float model with one signature and fixed shapes, with values and sums as its outputs."""
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where="the model")
    signature = model.signatureDefs[0]
    graph = model.subgraphs[signature.subgraphIndex]
    short, layers, shown = short_names(model), [], []
    for operator in list(graph.operators):
        tensor = graph.tensors[operator.outputs[0]] if operator.outputs else None
        constant = all(is_constant(model, graph.tensors[i]) for i in operator.inputs if i != -1)
        if tensor is None or type_of(tensor) != "float32" or constant:
            continue
        name, sums = text(tensor.name), _with_sums(model, graph, operator)
        shown += [operator.outputs[0], *([] if sums is None else [sums])]
        layers.append(
            LayerOutputs(
                layer=short.get(name, name),
                operator=operator_name(model, operator),
                values=str(operator.outputs[0]),
                sums="" if sums is None else str(sums),
            )
        )
    graph.outputs = shown
    signature.outputs = [TensorMapT(name=str(index), tensorIndex=index) for index in shown]
    return serialize(model), tuple(layers)


def _with_sums(model: ModelT, graph: SubGraphT, operator: OperatorT) -> int | None:
    """The new tensor with the sums of an operator; None where it adds up nothing that is known."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    name = operator_name(model, operator)
    if name not in _WEIGHTED | _REDUCING:
        return None
    twin = copy.copy(operator)
    source = _appended(graph, operator.inputs[0], "abs")
    twin.inputs = [source, *operator.inputs[1:]]
    if name in _WEIGHTED:
        weights = graph.tensors[operator.inputs[1]]
        if not is_constant(model, weights) or type_of(weights) != "float32":
            return None
        values = np.frombuffer(bytes(model.buffers[weights.buffer].data), np.float32)
        own = _appended(graph, operator.inputs[1], "abs")
        graph.tensors[own].buffer = 0
        store_values(model, graph.tensors[own], np.abs(values))
        bias = _appended(graph, operator.inputs[1], "bias")
        channels = shape_of(graph.tensors[operator.outputs[0]])[-1]
        graph.tensors[bias].shape, graph.tensors[bias].buffer = [channels], 0
        store_values(model, graph.tensors[bias], np.zeros(channels, np.float32))
        twin.inputs = [source, own, bias]
        twin.builtinOptions = copy.copy(operator.builtinOptions)
        twin.builtinOptions.fusedActivationFunction = 0
    else:
        twin.opcodeIndex = code_of(model, BuiltinOperator.SUM)
    sums = _appended(graph, operator.outputs[0], "sums")
    twin.outputs = [sums]
    first = copy.copy(operator)
    first.opcodeIndex = code_of(model, BuiltinOperator.ABS)
    first.inputs, first.outputs = [operator.inputs[0]], [source]
    first.builtinOptions, first.builtinOptionsType = None, 0
    graph.operators += [first, twin]
    return sums


def _appended(graph: SubGraphT, like: int, suffix: str) -> int:
    """The index of a new tensor like another one, for values that an operator computes."""
    tensor = copy.copy(graph.tensors[like])
    tensor.name = f"{text(tensor.name)}_{suffix}_{len(graph.tensors)}"
    tensor.quantization = None
    tensor.buffer = 0
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1
