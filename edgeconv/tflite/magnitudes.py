"""A float model that also computes how large its sums can become, in any order of adding up."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.edit import code_of, store_values
from edgeconv.tflite.flatbuffer import is_constant, operator_name, parse, serialize, text
from edgeconv.tflite.layer_names import short_names
from edgeconv.tflite.uses import shape_of, type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT

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
    import numpy as np
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
