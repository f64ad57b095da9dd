"""How a model prepares its inputs before the first layer: constants, logarithms, roots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import is_constant, operator_name, read, text
from edgeconv.model.tflite.operators import SHAPE_ONLY, type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SignatureDefT, SubGraphT

# Operators on one tensor, and on constants if they have another input.
_SCALES = frozenset(
    {
        *("ABS", "ADD", "DIV", "EXP", "LOG", "MAXIMUM", "MINIMUM", "MUL", "NEG", "POW", "RELU"),
        *("RSQRT", "SQRT", "SQUARE", "SUB", "COS", "FLOOR_DIV", "FLOOR_MOD", "SIN"),
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


class InputFront(NamedTuple):
    """What a signature's inputs go through before the first layer that mixes their values.

    `inputs` are the names of those inputs, `layers` the first outputs of the operators, in order.
    """

    signature: str
    inputs: tuple[str, ...]
    layers: tuple[str, ...]


def input_fronts(data: bytes) -> tuple[InputFront, ...]:
    """The front of each signature with one for float32 inputs, and with layers after it.

    It begins at the inputs and has the operators that scale each value alone. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    return tuple(
        front
        for signature in model.signatureDefs or ()
        if (front := _front(model, model.subgraphs[signature.subgraphIndex], signature))
    )


def _front(model: ModelT, graph: SubGraphT, signature: SignatureDefT) -> InputFront | None:
    names = {each.tensorIndex: text(each.name) for each in signature.inputs}
    reached = {index: {index} for index in names if type_of(graph.tensors[index]) == "float32"}
    front: list[OperatorT] = []
    rest = 0
    for operator in graph.operators:
        sources = _sources(model, graph, operator)
        if sources and all(index in reached for index in sources):
            front.append(operator)
            origins = set().union(*(reached[index] for index in sources))
            reached |= dict.fromkeys(operator.outputs, origins)
        elif operator_name(model, operator) not in SHAPE_ONLY:
            rest += 1
    kept = _scaling(model, front)
    if not (kept and rest):
        return None
    origins = set().union(*(reached[operator.outputs[0]] for operator in kept))
    return InputFront(
        text(signature.signatureKey),
        tuple(name for index, name in names.items() if index in origins),
        tuple(text(graph.tensors[operator.outputs[0]].name) for operator in kept),
    )


def _sources(model: ModelT, graph: SubGraphT, operator: OperatorT) -> list[int]:
    """The tensors of values of an operator that may be in a front; [] for any other."""
    name = operator_name(model, operator)
    if name in _MOVED_INPUT:
        return [operator.inputs[_MOVED_INPUT[name]]]
    varying = list(_varying(model, graph, operator))
    if name in _JOINS:
        return varying if len(varying) == len(operator.inputs) else []
    return varying if name in _SCALES and len(varying) == 1 else []


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
