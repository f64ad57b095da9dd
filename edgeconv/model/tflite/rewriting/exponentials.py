"""Activations that the converter writes with an exponential that grows without end.

EXP of 89 is infinite in float32, and of 12 in float16, where the activation is neither. And no
scale of 8 bits serves an exponential of large numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.model.tflite.flatbuffer import parse, read, serialize
from edgeconv.model.tflite.rewriting.editor import GraphEditor, activation_of
from edgeconv.model.tflite.unread import without_unread_tensors

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT


def with_bounded_exponentials(data: bytes) -> bytes:
    """The same model, whose softplus and SELU have no EXP of a large number.

    `data` itself comes back without them. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    if not any(_unbounded(GraphEditor(model, each, {}, "int8")) for each in model.subgraphs):
        return data
    model = parse(data, where="the model")
    for graph in model.subgraphs:
        editor = GraphEditor(model, graph, {}, "int8")
        for operator, x in _unbounded(editor):
            is_softplus = editor.name(operator) == "LOG"
            others = (_softplus if is_softplus else _elu)(editor, x, operator.outputs[0])
            position = next(i for i, each in enumerate(graph.operators) if each is operator)
            graph.operators[position : position + 1] = others
        _remove_unread(editor)
    return without_unread_tensors(serialize(model))


def _unbounded(editor: GraphEditor) -> list[tuple[OperatorT, int]]:
    """Each operator that makes one of these of an exponential, and what that is taken of."""
    found = []
    for operator in editor.graph.operators:
        name = editor.name(operator)
        if name == "LOG":
            x = _power(editor, editor.writer(operator.inputs[0]), "ADD")
        elif name == "SUB":
            x = _power(editor, operator, "SUB")
            x = x if x is not None and _is_for_below_zero(editor, x, operator) else None
        else:
            continue
        if x is not None and not _is_negative(editor, x):
            found.append((operator, x))
    return found


def _power(editor: GraphEditor, operator: OperatorT | None, name: str) -> int | None:
    """The x of EXP(x) + 1 or EXP(x) - 1; None for another operator."""
    if operator is None or editor.name(operator) != name or activation_of(operator):
        return None
    power, one = operator.inputs
    if name == "ADD" and editor.is_constant(power):
        power, one = one, power
    writer = editor.writer(power)
    is_one = editor.scalar(one) == 1 and editor.shape(power) == editor.shape(operator.outputs[0])
    if not is_one or writer is None or editor.name(writer) != "EXP":
        return None
    return int(writer.inputs[0]) if editor.is_float(writer.inputs[0]) else None


def _is_negative(editor: GraphEditor, x: int) -> bool:
    """Whether x is -|y|, of which EXP is at most 1."""
    writer = editor.writer(x)
    if writer is None or editor.name(writer) != "NEG":
        return False
    absolute = editor.writer(writer.inputs[0])
    return absolute is not None and editor.name(absolute) == "ABS"


def _is_for_below_zero(editor: GraphEditor, x: int, operator: OperatorT) -> bool:
    """Whether what an operator gives is read, scaled, only where x is not above 0."""
    index = operator.outputs[0]
    while editor.is_read_once(index):
        (reader,) = editor.readers(index)
        name = editor.name(reader)
        if name == "SELECT_V2" and list(reader.inputs).index(index) == 2:
            compared = editor.writer(reader.inputs[0])
            if compared is None or editor.name(compared) != "GREATER":
                return False
            return compared.inputs[0] == x and editor.scalar(compared.inputs[1]) == 0
        if name != "MUL" or not any(editor.is_constant(each) for each in reader.inputs):
            return False
        index = reader.outputs[0]
    return False


def _softplus(editor: GraphEditor, x: int, output: int) -> list[OperatorT]:
    """RELU(x) - LOG(LOGISTIC(ABS(x)))."""
    above, size, share, log = (
        editor.like(output, name) for name in ("above", "size", "share", "log")
    )
    return [
        editor.operator("RELU", [x], above),
        editor.operator("ABS", [x], size),
        editor.operator("LOGISTIC", [size], share),
        editor.operator("LOG", [share], log),
        editor.operator("SUB", [above, log], output),
    ]


def _elu(editor: GraphEditor, x: int, output: int) -> list[OperatorT]:
    """ELU(x), which is EXP(x) - 1 wherever that is read."""
    return [editor.operator("ELU", [x], output)]


def _remove_unread(editor: GraphEditor) -> None:
    """Remove each EXP, and what adds to it, that nothing reads any more."""
    graph = editor.graph
    for name in ("ADD", "EXP"):
        read = {each for operator in graph.operators for each in operator.inputs}
        read.update(graph.outputs)
        graph.operators = [
            each for each in graph.operators if editor.name(each) != name or read & {*each.outputs}
        ]
