"""A graph in segments that run one after another, each as a model.

An operator on constants alone, such as the DEQUANTIZE of a weight, belongs to every segment that
reads its result.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import operator_name, operators_of, serialize
from edgeconv.model.tflite.operators import parameter_tensors

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import BufferT, ModelT, OperatorT, SubGraphT, TensorT

# Their state is not in a tensor.
_STATEFUL = frozenset(
    {
        "ASSIGN_VARIABLE",
        "CALL_ONCE",
        "HASHTABLE",
        "HASHTABLE_FIND",
        "HASHTABLE_IMPORT",
        "HASHTABLE_SIZE",
        "READ_VARIABLE",
        "VAR_HANDLE",
    }
)


class Segment(NamedTuple):
    """Operators as a model, whose inputs and outputs are these tensors, in this order.

    Their numbers count the whole graph; the model has only the tensors that it needs.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    model: ModelT

    def data(self, shapes: Mapping[int, tuple[int, ...]]) -> bytes:
        """The .tflite with these shapes of the inputs."""
        graph = self.model.subgraphs[0]
        tensors = list(graph.tensors)
        for index, position in zip(self.inputs, graph.inputs, strict=True):
            tensors[position] = _shaped(tensors[position], shapes[index])
        sized = copy.copy(self.model)
        sized.subgraphs = [copy.copy(graph), *self.model.subgraphs[1:]]
        sized.subgraphs[0].tensors = tensors
        return serialize(sized)


class GraphSegments:
    """The first graph of a model, up to and including operator number `last`.

    Later edits of the model's buffers, tensors and operators show in the segments cut after them,
    as long as the operators keep their numbers.
    """

    def __init__(self, model: ModelT, last: int) -> None:
        self._model = model
        self._last = last

    @property
    def _graph(self) -> SubGraphT:
        return self._model.subgraphs[0]

    def live(self, number: int) -> frozenset[int]:
        """The tensors that exist before operator `number` and are read by it or a later one."""
        written = {i for operator in self._graph.operators[number:] for i in operator.outputs}
        return frozenset(self._read(number, self._last + 1) - written)

    def cut(self, start: int, stop: int) -> Segment | None:
        """The operators from `start` to before `stop`; None where none of them is needed."""
        kept = self.live(stop)
        outputs = tuple(sorted(kept - self.live(start)))
        if not outputs:
            return None
        operators = [
            o for n, o in enumerate(self._graph.operators) if self._belongs(n, start, stop)
        ]
        inputs = tuple(sorted(self._read(start, stop) & self.live(start)))
        return Segment(inputs, outputs, self._model_of(operators, inputs, outputs))

    def _belongs(self, number: int, start: int, stop: int) -> bool:
        if number in self._constant_operators:
            # Nothing reads later ones yet.
            return number < stop
        return start <= number < stop

    @cached_property
    def _given(self) -> frozenset[int]:
        """What callers or operators give. The rest is constant, also the shape of a scalar.

        That has no numbers, and so no data in the file.
        """
        written = (index for operator in self._graph.operators for index in operator.outputs)
        return frozenset((*self._graph.inputs, *written))

    @cached_property
    def _constant_operators(self) -> frozenset[int]:
        fixed = {
            index
            for index, tensor in enumerate(self._graph.tensors)
            if index not in self._given and not tensor.isVariable
        }
        numbers = set()
        for number, operator in enumerate(self._graph.operators):
            if operator.inputs and all(i in fixed or i == -1 for i in operator.inputs):
                numbers.add(number)
                fixed.update(operator.outputs)
        return frozenset(numbers)

    def _read(self, start: int, stop: int) -> set[int]:
        """The activations that operators from `start` to before `stop` read."""
        graph, constant = self._graph, set()
        for number in self._constant_operators:
            constant.update(graph.operators[number].outputs)
        return {
            index
            for number in range(start, stop)
            if number not in self._constant_operators
            for index in graph.operators[number].inputs
            if index in self._given
            and index not in constant
            and not graph.tensors[index].isVariable
        }

    def _model_of(
        self, operators: list[OperatorT], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> ModelT:
        from ai_edge_litert.schema_py_generated import TensorT

        graph = copy.copy(self._graph)
        graph.operators = _needed(operators, outputs)
        graph.inputs, graph.outputs = list(inputs), list(outputs)
        # The others keep their numbers, and nothing else: writing them would take most of the time.
        used = {i for operator in graph.operators for i in (*operator.inputs, *operator.outputs)}
        for index in tuple(used - {-1}):
            used |= parameter_tensors(graph.tensors[index])
        used.update(inputs, outputs)
        unused = TensorT(shape=[])
        graph.tensors = [t if i in used else unused for i, t in enumerate(graph.tensors)]
        model = copy.copy(self._model)
        model.subgraphs = [
            _with_needed_tensors(graph),
            *(_with_own_tensors(each) for each in self._model.subgraphs[1:]),
        ]
        model.signatureDefs = model.metadata = model.metadataBuffer = None
        model.buffers = _needed_buffers(model)
        return model


def state_outside(model: ModelT) -> tuple[str, ...]:
    """The operators that keep values outside of tensors, which prevents a cut; sorted."""
    names = (operator_name(model, operator) for _, operator in operators_of(model))
    return tuple(sorted(_STATEFUL.intersection(names)))


def _shaped(tensor: TensorT, shape: tuple[int, ...]) -> TensorT:
    shaped = copy.copy(tensor)
    shaped.shape = list(shape)
    shaped.shapeSignature = None
    return shaped


def _needed(operators: list[OperatorT], outputs: tuple[int, ...]) -> list[OperatorT]:
    """Those that the outputs depend on, in their order."""
    needed, kept = set(outputs), []
    for operator in reversed(operators):
        if needed.intersection(operator.outputs):
            kept.append(operator)
            needed.update(operator.inputs)
    return kept[::-1]


def _with_needed_tensors(graph: SubGraphT) -> SubGraphT:
    """The graph with those tensors alone that it reads or writes: most of the work is to pack them.

    Its tensors are copies.
    """
    needed = {*graph.inputs, *graph.outputs}
    for operator in graph.operators:
        needed.update(i for part in _tensors_of(operator).values() for i in part)
    needed -= {-1}
    for index in tuple(needed):
        needed |= parameter_tensors(graph.tensors[index])
    kept = sorted(needed)
    numbers = {index: number for number, index in enumerate(kept)} | {-1: -1}
    compact = copy.copy(graph)
    compact.tensors = [_renumbered(graph.tensors[index], numbers) for index in kept]
    compact.operators = []
    for operator in graph.operators:
        moved = copy.copy(operator)
        for name, indices in _tensors_of(operator).items():
            setattr(moved, name, [numbers[i] for i in indices])
        compact.operators.append(moved)
    compact.inputs = [numbers[i] for i in graph.inputs]
    compact.outputs = [numbers[i] for i in graph.outputs]
    return compact


def _tensors_of(operator: OperatorT) -> dict[str, list[int]]:
    """The numbers of an operator's tensors, by the name of the field."""
    fields = {name: getattr(operator, name) for name in ("inputs", "outputs", "intermediates")}
    return {name: [int(i) for i in value] for name, value in fields.items() if value is not None}


def _renumbered(tensor: TensorT, numbers: Mapping[int, int]) -> TensorT:
    """A copy whose scales in other tensors, if it has such, are found under their new numbers."""
    tensor = copy.copy(tensor)
    if parameter_tensors(tensor):
        tensor.quantization = copy.copy(tensor.quantization)
        details = tensor.quantization.details = copy.copy(tensor.quantization.details)
        details.scales, details.zeroPoints = numbers[details.scales], numbers[details.zeroPoints]
    return tensor


def _with_own_tensors(graph: SubGraphT) -> SubGraphT:
    own = copy.copy(graph)
    own.tensors = [copy.copy(tensor) for tensor in graph.tensors]
    return own


def _needed_buffers(model: ModelT) -> list[BufferT]:
    """The buffers of the model's tensors, which get their new numbers; the first stays empty."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    kept = sorted({0} | {tensor.buffer for tensor in tensors})
    numbers = {buffer: number for number, buffer in enumerate(kept)}
    for tensor in tensors:
        tensor.buffer = numbers[tensor.buffer]
    return [model.buffers[buffer] for buffer in kept]
