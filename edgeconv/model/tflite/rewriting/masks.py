"""Masks of attention that integers cannot hold: -1e9, or the least float, and logits.

Keras selects or adds such a number where a position is to count for nothing. Below the range of
the logits by what makes exp() vanish, a number does the same to the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.model.tflite.kernels import COMPARISONS
from edgeconv.model.tflite.operators import type_of
from edgeconv.model.tflite.rewriting.editor import GraphEditor, activation_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT
    from numpy.typing import NDArray

    Limits = tuple[float, float]

_SAME_VALUES = frozenset(
    {"BROADCAST_TO", "EXPAND_DIMS", "RESHAPE", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TILE"}
    | {"TRANSPOSE", "PACK", "CONCATENATION", "GATHER"}
)
_SELECTS = frozenset({"SELECT", "SELECT_V2"})
_SOFTMAXES = frozenset({"LOG_SOFTMAX", "SOFTMAX"})
_LARGEST = frozenset({"ARG_MAX", "MAX_POOL_2D", "REDUCE_MAX", "TOPK_V2"})
# exp() of less than this, times the number of positions, is nothing beside 1 in a float32.
_VANISHING = math.log(2.0**24)
# A number that lies below the others by less is no mask.
_LEAST_GAP = 60.0
_MOST_STEPS = 12
# Beside a number, a float of 16 bits does not hold what is a smaller part of it.
_SWALLOWS = 2.0**-11


def has_masks(editor: GraphEditor) -> bool:
    """Whether the graph has a constant that may be a mask, which no model's weights come near."""
    return any(
        limits is not None and (limits[0] < -_LEAST_GAP or limits[1] > _LEAST_GAP)
        for operator in editor.graph.operators
        if editor.name(operator) in ("ADD", "MUL", "SUB", *_SELECTS)
        for index in operator.inputs
        if editor.is_float(index) and editor.is_constant(index)
        for limits in (editor.range(index),)
    )


def clamp(editor: GraphEditor, *, floors: bool = False) -> bool:
    """Make the masks before each softmax and maximum fit the range of what they mask.

    `floors` adds a MAXIMUM behind an added mask, which makes all masked positions equal, as adding
    -1e9 does: a row in which all are masked then has a softmax of equal parts. Whether there was
    anything to change.
    """
    added: list[_AddedMask] = []
    selected = []
    for operator in tuple(editor.graph.operators):
        name = editor.name(operator)
        is_largest = name in _LARGEST
        if not (is_largest or name in _SOFTMAXES) or not editor.is_float(operator.inputs[0]):
            continue
        source = _masking(editor, operator.inputs[0])
        if source is None:
            continue
        room = 0.0 if is_largest else _room(editor, operator)
        if editor.name(source) in _SELECTS:
            selected.append(_clamp_selected(editor, source, room))
        elif not activation_of(source):
            added += _added_masks(editor, source, room)
    # Layers share what their masks are made of.
    depth = max((mask.depth for mask in added), default=0.0)
    limited = [_limit_added(editor, mask, depth, floors=floors) for mask in added]
    return any(selected) or any(limited)


class _AddedMask(NamedTuple):
    """A sum, its input that is a mask, and how far below 0 that has to reach.

    `sign` is -1 for a mask that is subtracted. Below `floor` a softmax sees nothing.
    """

    operator: OperatorT
    slot: int
    sign: float
    depth: float
    floor: float


def _room(editor: GraphEditor, softmax: OperatorT) -> float:
    """How far below the largest number of a row one counts for nothing."""
    positions = max(2, editor.shape(softmax.inputs[0])[-1])
    beta = float(getattr(softmax.builtinOptions, "beta", 1.0) or 1.0)
    return (_VANISHING + math.log(positions)) / beta


def _masking(editor: GraphEditor, index: int) -> OperatorT | None:
    """The operator that masks what a tensor is only a reshape of."""
    for _ in range(_MOST_STEPS):
        writer = editor.writer(index)
        if writer is None or not editor.is_read_once(index):
            return None
        name = editor.name(writer)
        if name in _SELECTS or name in ("ADD", "SUB"):
            return writer
        if name not in _SAME_VALUES:
            return None
        index = writer.inputs[0]
    return None


def _added_masks(editor: GraphEditor, operator: OperatorT, room: float) -> list[_AddedMask]:
    """The input of an ADD or SUB that lies out of reach of the other, if any."""
    is_sum = editor.name(operator) == "ADD"
    masks = []
    for slot in (1, 0) if is_sum else (1,):
        limits = _finite(editor.range(operator.inputs[1 - slot]))
        of_mask = editor.range(operator.inputs[slot])
        if limits is None or of_mask is None:
            continue
        floor = limits[0] - room
        depth = limits[1] - floor
        reach = -of_mask[0] if is_sum else of_mask[1]
        if reach > max(2 * depth, _LEAST_GAP):
            sign = 1.0 if is_sum else -1.0
            masks.append(_AddedMask(operator, slot, sign, depth, floor))
    return masks[:1]


def _limit_added(editor: GraphEditor, mask: _AddedMask, depth: float, *, floors: bool) -> bool:
    if not _limit_mask(editor, mask.operator, mask.slot, mask.sign * -depth, _MOST_STEPS):
        return False
    if floors:
        _raise_to(editor, mask.operator, mask.floor)
    return True


def _finite(limits: Limits | None) -> Limits | None:
    usable = limits is not None and all(abs(limit) < 1e6 for limit in limits)
    return limits if usable else None


def _clamp_selected(editor: GraphEditor, operator: OperatorT, room: float) -> bool:
    for slot in (1, 2):
        index, other = operator.inputs[slot], operator.inputs[3 - slot]
        limits = _finite(editor.range(other))
        if limits is None:
            continue
        values, least = editor.value(index), limits[0] - room
        far = least - _LEAST_GAP
        if values is not None and float(values.min()) <= far:
            editor.set_constant(operator, slot, _at_least(values, least))
            return True
        # A SELECT would need a constant of the whole shape.
        if editor.name(operator) == "SELECT_V2" and _is_swallowed(editor, index, other, far):
            floor = editor.constant(index, "floor", least)
            operator.inputs = [floor if each == index else each for each in operator.inputs]
            return True
    return False


def _is_swallowed(editor: GraphEditor, index: int, other: int, far: float) -> bool:
    """As x - 1e9, which TFLiteConverter selects, or x, for x - 1e9 * mask of Keras's Attention."""
    writer, limits = editor.writer(index), editor.range(index)
    if writer is None or limits is None or editor.name(writer) not in ("ADD", "SUB"):
        return False
    is_sum = other in writer.inputs and any(map(editor.is_constant, writer.inputs))
    return is_sum and limits[1] <= far and limits[1] - limits[0] <= _SWALLOWS * abs(limits[1])


def _at_least(values: NDArray[Any], least: float) -> NDArray[Any]:
    import numpy as np

    return np.asarray(np.maximum(values, np.float32(least)), np.float32)


def _raise_to(editor: GraphEditor, operator: OperatorT, floor: float) -> None:
    """Let a MAXIMUM follow an operator; readers of its result read the MAXIMUM from then on."""
    output = operator.outputs[0]
    inner = editor.like(output, "masked")
    constant = editor.constant(output, "floor", floor)
    operator.outputs = [inner]
    position = next(n for n, each in enumerate(editor.graph.operators) if each is operator)
    raised = editor.operator("MAXIMUM", [inner, constant], output)
    editor.graph.operators.insert(position + 1, raised)


def _limit_mask(
    editor: GraphEditor, reader: OperatorT, slot: int, limit: float, steps: int
) -> bool:
    """Let a mask go to `limit` and not beyond it, by the constants that it is made of.

    `limit` is below 0 for a mask that is added. Only where nothing but the reader, and others that
    mask with it, read the constants. False where it is made of something else.
    """
    index = reader.inputs[slot]
    values = editor.value(index)
    if values is not None:
        editor.set_constant(reader, slot, _within(values, limit))
        return True
    writer = editor.writer(index)
    if writer is None or not steps or activation_of(writer):
        return False
    name = editor.name(writer)
    slots = list(_mask_slots(editor, writer, name))
    limited = [
        _limit_mask(editor, writer, each, limit, steps - 1)
        for each in slots
        if name in _SAME_VALUES | _SELECTS or name in ("ADD", "MINIMUM", "MAXIMUM")
    ]
    if limited:
        return all(limited)
    if name != "MUL":
        return False
    for each in (0, 1):
        factor = editor.scalar(writer.inputs[each])
        others = editor.range(writer.inputs[1 - each])
        if factor is None or others is None or min(others) < 0 or not max(others) > 0:
            continue
        if factor * limit > 0 and abs(factor) * max(others) >= abs(limit):
            shape = editor.shape(writer.inputs[each])
            editor.set_constant(writer, each, _filled(shape, limit / max(others)))
        return True
    return False


def _filled(shape: tuple[int, ...], value: float) -> NDArray[Any]:
    import numpy as np

    return np.full(shape, value, np.float32)


def _mask_slots(editor: GraphEditor, writer: OperatorT, name: str) -> Iterator[int]:
    """The inputs of an operator that carry the mask: floats, and of a sum those beyond reach."""
    for slot, index in enumerate(writer.inputs):
        if not editor.is_float(index):
            continue
        limits = editor.range(index) if name in ("ADD", "MINIMUM", "MAXIMUM") else None
        if limits is None or max(map(abs, limits)) >= _LEAST_GAP:
            yield slot


def _within(values: NDArray[Any], limit: float) -> NDArray[Any]:
    import numpy as np

    bound = np.float32(limit)
    return np.asarray((np.maximum if limit < 0 else np.minimum)(values, bound), np.float32)


_IDS = frozenset({"int32", "int64"})


def compare_as_integers(editor: GraphEditor) -> bool:
    """Compare the result of a CAST where floats are compared with a whole number.

    `keras.Input((n,))` is float32, and an Embedding casts it: 8 bits cannot hold an id of 20,000.
    Returns whether there was anything to change.
    """
    changed = [
        _compare(editor, operator, slot)
        for operator in tuple(editor.graph.operators)
        if editor.name(operator) in COMPARISONS
        for slot in (0, 1)
        if editor.is_float(operator.inputs[slot])
    ]
    return any(changed)


def _compare(editor: GraphEditor, operator: OperatorT, slot: int) -> bool:
    x, other = operator.inputs[slot], operator.inputs[1 - slot]
    values = editor.value(other)
    cast = _cast_of(editor, x)
    if values is None or cast is None or (values != values.round()).any():
        return False
    target = cast.outputs[0]
    constant = editor.constant(other, "whole", values, type_of(editor.tensor(target)))
    operator.inputs = [target, constant] if slot == 0 else [constant, target]
    editor.settle_version(operator)
    operators = [each for each in editor.graph.operators if each is not cast]
    position = next(n for n, each in enumerate(operators) if each is operator)
    first = min([position, *(n for n, each in enumerate(operators) if target in each.inputs)])
    editor.graph.operators = [*operators[:first], cast, *operators[first:]]
    return True


def _cast_of(editor: GraphEditor, index: int) -> OperatorT | None:
    """The CAST that makes integers of a float tensor that no constant is."""
    if editor.is_constant(index):
        return None
    for reader in editor.readers(index):
        is_cast = editor.name(reader) == "CAST"
        if is_cast and type_of(editor.tensor(reader.outputs[0])) in _IDS:
            return reader
    return None
