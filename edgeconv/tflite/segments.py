"""A graph in segments that run one after another, each as a model.

An operator on constants alone, such as the DEQUANTIZE of a weight, belongs to every segment that
reads its result.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import is_constant, operator_name, operators_of, serialize
from edgeconv.tflite.uses import parameter_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Operators as a model, whose inputs and outputs are these tensors, in this order."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    model: ModelT

    def data(self, shapes: Mapping[int, tuple[int, ...]]) -> bytes:
        """The .tflite with these shapes of the inputs."""
        graph = self.model.subgraphs[0]
        tensors = list(graph.tensors)
        for index in self.inputs:
            tensors[index] = _shaped(tensors[index], shapes[index])
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
    def _constant_operators(self) -> frozenset[int]:
        fixed = {i for i, t in enumerate(self._graph.tensors) if is_constant(self._model, t)}
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
            if index != -1
            and index not in constant
            and not is_constant(self._model, graph.tensors[index])
            and not graph.tensors[index].isVariable
        }

    def _model_of(
        self, operators: list[OperatorT], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> ModelT:
        graph = copy.copy(self._graph)
        graph.operators = _needed(operators, outputs)
        graph.inputs, graph.outputs = list(inputs), list(outputs)
        model = copy.copy(self._model)
        model.subgraphs = [graph, *self._model.subgraphs[1:]]
        model.signatureDefs = model.metadata = model.metadataBuffer = None
        model.buffers = _read_buffers(self._model, graph)
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


def _read_buffers(model: ModelT, graph: SubGraphT) -> list[BufferT]:
    """The buffers, emptied where no operator of `graph` or of another subgraph reads them."""
    from ai_edge_litert.schema_py_generated import BufferT

    read = {i for operator in graph.operators for i in operator.inputs if i != -1}
    for index in tuple(read):
        read |= parameter_tensors(graph.tensors[index])
    used = {graph.tensors[i].buffer for i in read}
    used |= {t.buffer for each in model.subgraphs[1:] for t in each.tensors}
    return [b if i in used else BufferT() for i, b in enumerate(model.buffers)]
