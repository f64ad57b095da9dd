"""Powers, quotients, sums and steps, as operators that have integer kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgeconv.model.tflite.rewriting.editor import GraphEditor, activation_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

    Operators = list[OperatorT] | None
    Change = Callable[[], None]

# A whole number less a half and this rounds to itself, though a tie goes to the even number.
_BESIDE_A_TIE = 2.0**-17


def square(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(x, x)."""
    x = operator.inputs[0]
    return [editor.operator("MUL", [x, x], operator.outputs[0])]


def squared_difference(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(d, d) of d = SUB(x, y)."""
    difference = editor.like(operator.outputs[0], "difference")
    return [
        editor.operator("SUB", operator.inputs, difference),
        editor.operator("MUL", [difference, difference], operator.outputs[0]),
    ]


def power(editor: GraphEditor, operator: OperatorT) -> Operators:
    """Products and roots for a constant exponent, else EXP(y * LOG(x)) for x above 0."""
    x, output = operator.inputs[0], operator.outputs[0]
    exponent, base = editor.scalar(operator.inputs[1]), editor.scalar(x)
    if base is not None and base > 0:
        scaled = editor.like(output, "scaled")
        factor = editor.constant(output, "log_base", math.log(base))
        return [
            editor.operator("MUL", [operator.inputs[1], factor], scaled),
            editor.operator("EXP", [scaled], output),
        ]
    if exponent is None:
        return None
    if exponent in _PRODUCTS:
        return _chain(editor, x, output, _PRODUCTS[exponent])
    limits = editor.range(x)
    if limits is None or limits[0] <= 0:
        return None
    log, scaled = editor.like(output, "log"), editor.like(output, "scaled")
    factor = editor.constant(output, "exponent", exponent)
    return [
        editor.operator("LOG", [x], log),
        editor.operator("MUL", [log, factor], scaled),
        editor.operator("EXP", [scaled], output),
    ]


# Each step makes the next number of the last one ("last") and of the base ("x").
_PRODUCTS: dict[float, tuple[str, ...]] = {
    1.5: ("SQRT", "times x"),
    2.0: ("times x",),
    3.0: ("squared", "times x"),
    4.0: ("squared", "squared"),
    0.5: ("SQRT",),
    0.25: ("SQRT", "SQRT"),
    -0.5: ("RSQRT",),
    -1.0: ("inverse",),
    -2.0: ("squared", "inverse"),
}


def _chain(editor: GraphEditor, x: int, output: int, steps: tuple[str, ...]) -> list[OperatorT]:
    operators, last = [], x
    for number, step in enumerate(steps, start=1):
        target = output if number == len(steps) else editor.like(output, "power")
        if step == "inverse":
            operators.append(editor.operator("DIV", [_one_like(editor, output), last], target))
        elif step in ("squared", "times x"):
            other = last if step == "squared" else x
            operators.append(editor.operator("MUL", [last, other], target))
        else:
            operators.append(editor.operator(step, [last], target))
        last = target
    return operators


def _one_like(editor: GraphEditor, beside: int) -> int:
    return editor.constant(beside, "one", 1.0)


def quotient(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(x, DIV(1, y)); by a constant MUL(x, 1 / y), by a root MUL(x, RSQRT(y))."""
    x, y = operator.inputs
    output = operator.outputs[0]
    activation = activation_of(operator)
    if not editor.is_float(x) or editor.scalar(x) is not None:
        return None
    values = editor.value(y)
    if values is not None:
        if not values.all():
            return None
        inverse = editor.constant(output, "inverse", 1.0 / values)
        before = []
    else:
        inverse = editor.like(y, "inverse")
        root = editor.writer(y)
        if root is not None and editor.name(root) == "SQRT":
            before = [editor.operator("RSQRT", [root.inputs[0]], inverse)]
        else:
            before = [editor.operator("DIV", [_one_like(editor, output), y], inverse)]
    product = editor.operator("MUL", [x, inverse], output, fusedActivationFunction=activation)
    return [*before, product]


def sum_of_many(editor: GraphEditor, operator: OperatorT) -> Operators:
    """ADD after ADD."""
    inputs, output = list(operator.inputs), operator.outputs[0]
    if len(inputs) < 2:
        return None
    operators, last = [], inputs[0]
    for number, index in enumerate(inputs[1:], start=2):
        target = output if number == len(inputs) else editor.like(output, "sum")
        operators.append(editor.operator("ADD", [last, index], target))
        last = target
    return operators


def floor(editor: GraphEditor, operator: OperatorT) -> Operators:
    """ROUND(x - 0.5)."""
    return _rounded(editor, operator, _BESIDE_A_TIE - 0.5)


def ceiling(editor: GraphEditor, operator: OperatorT) -> Operators:
    """ROUND(x + 0.5)."""
    return _rounded(editor, operator, 0.5 - _BESIDE_A_TIE)


def _rounded(editor: GraphEditor, operator: OperatorT, offset: float) -> Operators:
    output = operator.outputs[0]
    moved, constant = editor.like(output, "moved"), editor.constant(output, "offset", offset)
    return [
        editor.operator("ADD", [operator.inputs[0], constant], moved),
        editor.operator("ROUND", [moved], output),
    ]


def floor_quotient(editor: GraphEditor, operator: OperatorT) -> Operators:
    """FLOOR(x / y)."""
    output = operator.outputs[0]
    ratio = editor.like(output, "ratio")
    return [
        editor.operator("DIV", operator.inputs, ratio),
        editor.operator("FLOOR", [ratio], output),
    ]


def floor_remainder(editor: GraphEditor, operator: OperatorT) -> Operators:
    """X - y * FLOOR(x / y)."""
    (x, y), output = operator.inputs, operator.outputs[0]
    ratio, whole, part = (editor.like(output, name) for name in ("ratio", "whole", "part"))
    return [
        editor.operator("DIV", [x, y], ratio),
        editor.operator("FLOOR", [ratio], whole),
        editor.operator("MUL", [whole, y], part),
        editor.operator("SUB", [x, part], output),
    ]


def sign(editor: GraphEditor, operator: OperatorT) -> Operators:
    """1 where 0 is less than x, -1 where x is less than 0, else 0."""
    from ai_edge_litert.schema_py_generated import TensorType

    x, output = operator.inputs[0], operator.outputs[0]
    zero = editor.constant(output, "zero", 0.0)
    ones = [editor.constant(output, name, value) for name, value in (("one", 1), ("less", -1))]
    above, below = editor.like(output, "is_above"), editor.like(output, "is_below")
    for index in (above, below):
        editor.tensor(index).type = TensorType.BOOL
    rest = editor.like(output, "rest")
    return [
        editor.operator("LESS", [x, zero], below),
        editor.operator("LESS", [zero, x], above),
        editor.operator("SELECT_V2", [below, ones[1], zero], rest),
        editor.operator("SELECT_V2", [above, ones[0], rest], output),
    ]


def turned_comparison(editor: GraphEditor, operator: OperatorT) -> Operators:
    """LESS for GREATER and GREATER_EQUAL for LESS_EQUAL, with the inputs in the other order."""
    name = {"GREATER": "LESS", "LESS_EQUAL": "GREATER_EQUAL"}[editor.name(operator)]
    return [editor.operator(name, list(operator.inputs)[::-1], operator.outputs[0])]


# With the sign of input 0 changed, they give the same with the sign changed.
_ODD = frozenset(
    {
        "DIV",
        "EXPAND_DIMS",
        "GATHER",
        "MEAN",
        "MUL",
        "RESHAPE",
        "SLICE",
        "SQUEEZE",
        "STRIDED_SLICE",
        "SUM",
        "TRANSPOSE",
    }
)
# With the sign of their input changed, they give the same.
_EVEN = frozenset({"ABS", "SQUARE"})
_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_MOST_STEPS = 6


def negation(editor: GraphEditor, operator: OperatorT) -> list[OperatorT] | None:
    """SUB for an ADD that follows, constants of the other sign before or behind, else MUL by -1."""
    source, negated = operator.inputs[0], operator.outputs[0]
    changes = _by_readers(editor, negated, _MOST_STEPS)
    if changes is not None:
        for change in changes:
            change()
        for reader in editor.readers(negated):
            reader.inputs = [source if index == negated else index for index in reader.inputs]
        return []
    if _by_writer(editor, source, negated):
        return []
    minus_one = editor.constant(negated, "minus_one", -1.0)
    return [editor.operator("MUL", [source, minus_one], negated)]


def _by_readers(editor: GraphEditor, index: int, steps: int) -> list[Change] | None:
    """What makes the readers of a tensor right after it changes its sign; None if one cannot be."""
    readers = editor.readers(index)
    if index in editor.graph.outputs or not readers or not steps:
        return None
    changes: list[Change] = []
    for reader in readers:
        needed = _by_reader(editor, reader, index, steps)
        if needed is None:
            return None
        changes += needed
    return changes


def _by_reader(
    editor: GraphEditor, reader: OperatorT, index: int, steps: int
) -> list[Change] | None:
    name = editor.name(reader)
    uses = list(reader.inputs).count(index)
    if name in _EVEN or (name == "MUL" and uses == 2):
        return []
    if uses != 1:
        return None
    slot = list(reader.inputs).index(index)
    if name == "ADD":
        return [lambda: _turn(editor, reader, "SUB", [reader.inputs[1 - slot], index])]
    if name == "SUB" and slot == 1:
        return [lambda: _turn(editor, reader, "ADD", [reader.inputs[0], index])]
    if name == "MUL" and editor.value(reader.inputs[1 - slot]) is not None:
        return [lambda: _negate_constant(editor, reader, 1 - slot)]
    if name in _WEIGHTED and slot == 0 and editor.value(reader.inputs[1]) is not None:
        return [lambda: _negate_constant(editor, reader, 1)]
    if name not in _ODD or activation_of(reader) or (slot and name not in ("MUL", "DIV")):
        return None
    output = reader.outputs[0]
    inner = _by_readers(editor, output, steps - 1)
    if inner is None:
        return None
    return [*inner, lambda: editor.rename(output, "negated")]


def _by_writer(editor: GraphEditor, source: int, negated: int) -> bool:
    """Let what makes a tensor make it with the other sign, if nothing else reads it."""
    writer = editor.writer(source)
    if writer is None or not editor.is_read_once(source) or activation_of(writer):
        return False
    name = editor.name(writer)
    if name in _WEIGHTED and editor.value(writer.inputs[1]) is not None:
        if len(writer.inputs) > 2 and writer.inputs[2] != -1:
            if editor.value(writer.inputs[2]) is None:
                return False
            _negate_constant(editor, writer, 2)
        _negate_constant(editor, writer, 1)
    elif name == "MUL" and any(editor.value(index) is not None for index in writer.inputs):
        _negate_constant(editor, writer, int(editor.value(writer.inputs[0]) is None))
    elif name == "SUB":
        writer.inputs = [writer.inputs[1], writer.inputs[0]]
    else:
        return False
    writer.outputs = [negated]
    return True


def _turn(editor: GraphEditor, operator: OperatorT, name: str, inputs: list[int]) -> None:
    activation = activation_of(operator)
    other = editor.operator(name, inputs, operator.outputs[0], fusedActivationFunction=activation)
    editor.turn_into(operator, other)


def _negate_constant(editor: GraphEditor, operator: OperatorT, slot: int) -> None:
    values = editor.value(operator.inputs[slot])
    assert values is not None, "it was looked at before"
    editor.set_constant(operator, slot, -values)
