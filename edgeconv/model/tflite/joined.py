"""Which values of an output come from which tensors, where all of them share one scale.

A quantized tensor has one scale. CONCATENATION and PACK, and operators that only rearrange, give
their inputs that of their output, so the part with small values gets the steps of the large ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, parse, text
from edgeconv.model.tflite.layers import WEIGHTED
from edgeconv.model.tflite.operators import shape_of, type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT
    from numpy.typing import NDArray

    Labels = NDArray[np.int32]

_RESHAPES = frozenset({"EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
_HEADS = WEIGHTED | {"TRANSPOSE_CONV"}
# The values of larger outputs would fill the memory in a few samples; detectors have less.
_MOST_VALUES = 2**22
# More channels are classes.
_MOST_CHANNELS = 1024


class JoinedOutput(NamedTuple):
    """An output whose values come from several tensors, or are the channels of one layer.

    `labels` has the number of its part for each value of one sample: int32, in the shape of the
    output without its batch. `is_joined`: the parts are tensors; otherwise they are channels, the
    last dimension of what one layer gives. `layers` has, in the order of the
    graph, the operators that give several parts one scale: the names of their tensors, and the
    numbers of those parts.
    """

    signature: str
    output: str
    labels: Labels
    is_joined: bool
    layers: tuple[tuple[str, frozenset[int]], ...]


def joined_outputs(data: bytes) -> tuple[JoinedOutput, ...]:
    """The float32 outputs that join several tensors, or several channels of a weighted layer.

    One that was computed further after that has its own scale and is left out, and so is one whose
    shape is not known. Raises `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    joined = []
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        for output in signature.outputs:
            if type_of(graph.tensors[output.tensorIndex]) != "float32":
                continue
            key, name = text(signature.signatureKey), text(output.name)
            traced = _traced(_Trace(model, graph), output.tensorIndex)
            if traced is not None:
                joined.append(JoinedOutput(key, name, *traced))
    return tuple(joined)


def _traced(
    trace: _Trace, tensor: int
) -> tuple[Labels, bool, tuple[tuple[str, frozenset[int]], ...]] | None:
    """As in `JoinedOutput`; None if there is only one part."""
    try:
        labels = trace.labels(tensor)
        is_joined = trace.sources > 1
        if not is_joined:
            trace = trace.by_channel()
            labels = trace.labels(tensor)
    except (ValueError, IndexError, RecursionError):
        # Shapes that are not known before the model runs, or do not fit each other.
        return None
    if labels.ndim < 2 or labels.max(initial=0) == 0 or (labels[:1] != labels).any():
        return None
    return labels[0], is_joined, tuple(trace.layers.items())


class _Trace:
    """The way back from an output to the tensors that its values come from."""

    def __init__(self, model: ModelT, graph: SubGraphT, *, channels: bool = False) -> None:
        self.sources = 0
        self.layers: dict[str, frozenset[int]] = {}
        self._model = model
        self._graph = graph
        self._channels = channels
        self._known: dict[int, Labels] = {}
        self._producers = {i: operator for operator in graph.operators for i in operator.outputs}

    def by_channel(self) -> _Trace:
        """The same way, where each channel of a layer with weights is a part."""
        return _Trace(self._model, self._graph, channels=True)

    def labels(self, index: int) -> Labels:
        """The part that each value of a tensor belongs to, in its shape. Raises `ValueError`."""
        if index not in self._known:
            self._known[index] = self._labels(index)
        return self._known[index]

    def _labels(self, index: int) -> Labels:
        shape = shape_of(self._graph.tensors[index])
        if math.prod(shape) > _MOST_VALUES:
            raise ValueError("too large")
        operator = self._producers.get(index)
        name = operator_name(self._model, operator) if operator is not None else ""
        labels = self._rearranged(operator, name, shape) if operator is not None else None
        if labels is None:
            return self._source(index, name, shape)
        self._add_layer(index, labels)
        return labels

    def _rearranged(self, operator: OperatorT, name: str, shape: tuple[int, ...]) -> Labels | None:
        """The labels of an operator's output where it only rearranges its inputs."""
        inputs = operator.inputs
        if name in _RESHAPES:
            return self.labels(inputs[0]).reshape(shape)
        if name == "TRANSPOSE":
            return self.labels(inputs[0]).transpose(self._integers(inputs[1]))
        axis = getattr(operator.builtinOptions, "axis", None)
        if name not in ("CONCATENATION", "PACK") or axis is None:
            return None
        if getattr(operator.builtinOptions, "fusedActivationFunction", 0):
            return None
        counts = (math.prod(shape_of(self._graph.tensors[index])) for index in inputs)
        if sum(counts) != math.prod(shape):
            raise ValueError("the inputs do not add up to the output")
        parts = [self.labels(index) for index in inputs]
        if name == "PACK":
            return np.stack(parts, axis)
        return np.concatenate(parts, axis)

    def _source(self, index: int, name: str, shape: tuple[int, ...]) -> Labels:
        if self._channels and name in _HEADS and shape and shape[-1] <= _MOST_CHANNELS:
            labels = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape)
            self._add_layer(index, labels)
            return labels
        self.sources += 1
        return np.full(shape, self.sources - 1, np.int32)

    def _add_layer(self, index: int, labels: Labels) -> None:
        parts = frozenset(map(int, np.unique(labels)))
        if len(parts) > 1:
            self.layers[text(self._graph.tensors[index].name)] = parts

    def _integers(self, index: int) -> list[int]:
        tensor = self._graph.tensors[index]
        if not is_constant(self._model, tensor) or type_of(tensor) != "int32":
            raise ValueError("not a constant")
        data = bytes(self._model.buffers[tensor.buffer].data)
        return [int(each) for each in np.frombuffer(data, "<i4")]
