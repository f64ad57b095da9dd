"""Parts of a model.

Copies have fixed shapes, are shortened, or have more outputs. A front prepares an input before the
first layer. A joined output has values that come from several tensors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import tensor_maps
from edgeconv.model.tflite.flatbuffer import (
    graphs_of,
    is_constant,
    operator_name,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.kernels import COMPARISONS, JUMPING_AT_INPUTS
from edgeconv.model.tflite.layers import WEIGHTED
from edgeconv.model.tflite.operators import SHAPE_ONLY, parameter_tensors, shape_of, type_of
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import SERVING_DEFAULT, quoted

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import (
        BufferT,
        ModelT,
        OperatorT,
        SignatureDefT,
        SubGraphT,
    )
    from numpy.typing import NDArray

    Labels = NDArray[np.int32]

_WHERE = "the model"


def with_fixed_shapes(data: bytes, key: str | None, shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """The same model with only signature `key`, whose inputs have these shapes by name.

    None or "" is the only one; a model without signatures gets one with its tensors' names. Raises
    `InputRefused` for bytes that are not a model or lack the signature or an input.
    """
    model = parse(data, where=_WHERE)
    signature = _signature(model, key) if model.signatureDefs else _unnamed_signature(model)
    model.signatureDefs = [signature]
    graph = model.subgraphs[signature.subgraphIndex]
    for tensor_map in signature.inputs:
        name = text(tensor_map.name)
        if name not in shapes:
            raise InputRefused(f"there are no samples for the model's input {name!r}")
        tensor = graph.tensors[tensor_map.tensorIndex]
        # An input without a batch dimension has its samples on a first axis of their own.
        is_stacked = len(shapes[name]) == len(shape_of(tensor)) + 1
        tensor.shape = list(shapes[name][is_stacked:])
    # A loop's graph gets its shapes when it runs; what is open there is not 1.
    for tensor in graph.tensors:
        tensor.shapeSignature = None
    return serialize(model)


def graph_of(data: bytes, key: str | None) -> SubGraphT:
    """The graph of a signature; None or "" is the only one. It must not be changed.

    Raises `InputRefused` for bytes that are not a model, and for an unknown signature.
    """
    model = read(data, where=_WHERE)
    if not model.signatureDefs:
        return model.subgraphs[0]
    return model.subgraphs[_signature(model, key).subgraphIndex]


def prefixes(data: bytes) -> Iterator[bytes]:
    """For each operator of the model with one signature, the model that ends after it.

    Its outputs are all tensors that the rest of the graph would read. Its inputs stay, even if
    nothing reads them. Widened weights that only the rest would read are left out: runtimes refuse
    such outputs.
    """
    model = parse(data, where=_WHERE)
    graph = model.subgraphs[_signature(model, None).subgraphIndex]
    for count in range(1, len(graph.operators) + 1):
        yield serialize(_end_after(model, count))


def with_outputs(data: bytes, tensors: Sequence[int]) -> bytes:
    """The model with one signature, whose outputs are these tensors, named by their indices.

    A delegate must compute them, and they keep their values through the run.
    """
    from ai_edge_litert.schema_py_generated import TensorMapT

    model = parse(data, where=_WHERE)
    signature = _signature(model, None)
    model.subgraphs[signature.subgraphIndex].outputs = list(tensors)
    signature.outputs = [TensorMapT(name=str(index), tensorIndex=index) for index in tensors]
    return serialize(model)


def _signature(model: ModelT, key: str | None) -> SignatureDefT:
    named = {text(signature.signatureKey): signature for signature in model.signatureDefs}
    if not key and len(named) == 1:
        return next(iter(named.values()))
    if key not in named:
        raise InputRefused(
            f"the model has no signature {key!r}", hint=f"choose one of {quoted(named)}"
        )
    return named[key]


def _unnamed_signature(model: ModelT) -> SignatureDefT:
    from ai_edge_litert.schema_py_generated import SignatureDefT, TensorMapT

    graph = model.subgraphs[0]

    def maps(indices: list[int]) -> list[TensorMapT]:
        return [TensorMapT(name=graph.tensors[i].name, tensorIndex=i) for i in indices]

    return SignatureDefT(
        signatureKey=SERVING_DEFAULT,
        subgraphIndex=0,
        inputs=maps(graph.inputs),
        outputs=maps(graph.outputs),
    )


def _end_after(model: ModelT, count: int) -> ModelT:
    ended = copy.copy(model)
    signature = copy.copy(model.signatureDefs[0])
    graph = copy.copy(model.subgraphs[signature.subgraphIndex])
    graph.operators = graph.operators[:count]
    graph.operators = _without_unread_constants(model, graph)
    graph.outputs = _unread_outputs(model, graph)
    signature.outputs = tensor_maps(graph, graph.outputs, "output")
    ended.signatureDefs = [signature]
    ended.subgraphs = list(model.subgraphs)
    ended.subgraphs[signature.subgraphIndex] = graph
    ended.buffers = _needed_buffers(model, graph)
    return ended


def _without_unread_constants(model: ModelT, graph: SubGraphT) -> list[OperatorT]:
    """The operators but those that compute from constants what none of the others reads."""
    *before, last = graph.operators
    read = {index for operator in graph.operators for index in operator.inputs}
    kept = [
        operator
        for operator in before
        if not read.isdisjoint(operator.outputs)
        or not all(is_constant(model, graph.tensors[i]) for i in operator.inputs if i != -1)
    ]
    return [*kept, last]


def _needed_buffers(model: ModelT, graph: SubGraphT) -> list[BufferT]:
    """The buffers, emptied where only removed operators read them."""
    from ai_edge_litert.schema_py_generated import BufferT

    used = {i for operator in graph.operators for i in operator.inputs if i != -1}
    for index in tuple(used):
        used |= parameter_tensors(graph.tensors[index])
    unused = {t.buffer for i, t in enumerate(graph.tensors) if i not in used}
    unused -= {t.buffer for i, t in enumerate(graph.tensors) if i in used}
    unused -= {t.buffer for each in model.subgraphs[1:] for t in each.tensors}
    return [BufferT() if i in unused else buffer for i, buffer in enumerate(model.buffers)]


def _unread_outputs(model: ModelT, graph: SubGraphT) -> list[int]:
    """The tensors that operators write and none of them reads."""
    read = {index for operator in graph.operators for index in operator.inputs}
    written = [index for operator in graph.operators for index in operator.outputs if index != -1]
    return [i for i in written if i not in read and not is_constant(model, graph.tensors[i])]


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


# Operators on each value alone, or with another one of the same inputs.
_SCALES = frozenset(
    {
        *("ABS", "ADD", "BUCKETIZE", "CAST", "CEIL", "COS", "DIV", "EXP", "FLOOR", "FLOOR_DIV"),
        *("FLOOR_MOD", "LOG", "MAXIMUM", "MINIMUM", "MUL", "NEG", "POW", "RELU", "ROUND", "RSQRT"),
        *("SIGN", "SIN", "SQRT", "SQUARE", "SUB", *COMPARISONS),
    }
)
_JOINS = frozenset({"CONCATENATION", "PACK"})
# They only move the values of this input.
_MOVED_INPUT = {
    **dict.fromkeys(
        ("EXPAND_DIMS", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"), 0
    ),
    "SPLIT": 1,
}
# Inputs of these types have values that a model makes floats of.
_OTHER_NUMBERS = frozenset({"float64", "int8", "int16", "int32", "int64", "uint8", "uint32"})


class InputFront(NamedTuple):
    """What a signature's inputs go through before the first layer that mixes their values.

    `inputs` are the names of those inputs, `layers` the first outputs of the operators, in order.
    `jumps` says whether one of them jumps, such as a comparison with a threshold.
    """

    signature: str
    inputs: tuple[str, ...]
    layers: tuple[str, ...]
    jumps: bool


def input_fronts(data: bytes) -> tuple[InputFront, ...]:
    """The front of each signature with one for its numbers, and with layers after it or jumps.

    It begins where inputs are float32, or become it, and has the operators that scale each value
    alone. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    return tuple(
        front
        for signature in model.signatureDefs or ()
        if (front := _front(model, model.subgraphs[signature.subgraphIndex], signature))
    )


def _front(model: ModelT, graph: SubGraphT, signature: SignatureDefT) -> InputFront | None:
    names = {each.tensorIndex: text(each.name) for each in signature.inputs}
    types = {index: type_of(graph.tensors[index]) for index in names}
    reached = {index: {index} for index in names if types[index] == "float32"}
    others = {index: {index} for index in names if types[index] in _OTHER_NUMBERS}
    front: list[OperatorT] = []
    rest = 0
    for operator in graph.operators:
        name = operator_name(model, operator)
        moved = operator.inputs[:1] if name == "CAST" else _moved(operator, name)
        if moved and (given := others.get(moved[0])):
            for index in operator.outputs:
                known = reached if type_of(graph.tensors[index]) == "float32" else others
                known[index] = given
            continue
        sources = _sources(model, graph, operator)
        origins = set().union(*(reached.get(index, {-1}) for index in sources))
        is_alone = name in _JOINS or all(reached.get(index) == origins for index in sources)
        if origins and -1 not in origins and is_alone:
            front.append(operator)
            floats = (i for i in operator.outputs if type_of(graph.tensors[i]) == "float32")
            reached |= dict.fromkeys(floats, origins)
        elif name not in SHAPE_ONLY:
            rest += 1
    kept = _scaling(model, front)
    jumps = any(operator_name(model, each) in JUMPING_AT_INPUTS for each in kept)
    if not kept or not (rest or jumps):
        return None
    origins = set().union(*(reached.get(i, set()) for each in kept for i in each.inputs))
    return InputFront(
        text(signature.signatureKey),
        tuple(name for index, name in names.items() if index in origins),
        tuple(text(graph.tensors[operator.outputs[0]].name) for operator in kept),
        jumps,
    )


def _sources(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[int]:
    """The tensors of values of an operator that may be in a front; [] for any other."""
    name = operator_name(model, operator)
    if name in _MOVED_INPUT:
        return _moved(operator, name)
    varying = list(_varying(model, graph, operator))
    if name in _JOINS:
        return varying if len(varying) == len(operator.inputs) else []
    return varying if name in _SCALES else []


def _moved(operator: OperatorT, name: str) -> list[int]:
    """What an operator moves the values of; [] for any other, and without it in a broken file."""
    at = _MOVED_INPUT.get(name)
    return [] if at is None else operator.inputs[at : at + 1]


def _varying(model: ModelT, graph: SubGraphT, operator: OperatorT) -> Iterator[int]:
    for index in operator.inputs:
        if index != -1 and not is_constant(model, graph.tensors[index]):
            yield index


def _scaling(model: ModelT, front: list[OperatorT]) -> list[OperatorT]:
    """The operators of a front up to the last ones that scale."""
    kept: list[OperatorT] = []
    needed = set[int]()
    for operator in reversed(front):
        if operator_name(model, operator) in _SCALES or needed & set(operator.outputs):
            kept.append(operator)
            needed |= set(operator.inputs)
    return kept[::-1]


# What gives one of a few values, also where its inputs hardly differ; and what passes them on.
_DECIDES = COMPARISONS | {"ARG_MAX", "ARG_MIN", "CEIL", "FLOOR", "ONE_HOT", "ROUND", "SIGN"}
_PASSES = frozenset({"CAST", "EXPAND_DIMS", "LOGICAL_NOT", "RESHAPE", "SQUEEZE", "TRANSPOSE"})
_CHOOSES = frozenset({"LOGICAL_AND", "LOGICAL_OR", "SELECT", "SELECT_V2"})


def decided_outputs(data: bytes, key: str) -> frozenset[str]:
    """The outputs of signature `key` that are decisions, such as one-hot classes, by name.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    names = set[str]()
    for signature, graph in graphs_of(model, key):
        decided = {i for i, each in enumerate(graph.tensors) if is_constant(model, each)}
        varying = set[int]()
        for operator in graph.operators:
            name = operator_name(model, operator)
            is_passed = name in _PASSES and operator.inputs[0] in varying
            is_chosen = name in _CHOOSES and decided.issuperset(operator.inputs)
            if name in _DECIDES or is_passed or is_chosen:
                decided.update(operator.outputs)
                varying.update(operator.outputs)
        names |= {text(each.name) for each in signature.outputs if each.tensorIndex in varying}
    return frozenset(names)
