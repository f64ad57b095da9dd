"""Activations, normalizations and moves of values, as operators that have integer kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgeconv.model.tflite.rewriting.editor import GraphEditor, activation_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

    Operators = list[OperatorT] | None
    _Line = tuple[Any, Any]

# A triangle of ones of more numbers than this would be larger than most layers.
_MOST_SUMMED = 512
# What LiteRT's L2_NORMALIZATION takes for the length of a row of zeros.
_LEAST_LENGTH = 1e-6


def elu(editor: GraphEditor, operator: OperatorT) -> Operators:
    """RELU(x) + (EXP(MINIMUM(x, 0)) - 1)."""
    x, output = operator.inputs[0], operator.outputs[0]
    above, below, power, less = (
        editor.like(output, name) for name in ("above", "below", "power", "less_one")
    )
    zero, unit = (editor.constant(output, name, value) for name, value in (("zero", 0), ("one", 1)))
    return [
        editor.operator("RELU", [x], above),
        editor.operator("MINIMUM", [x, zero], below),
        editor.operator("EXP", [below], power),
        editor.operator("SUB", [power, unit], less),
        editor.operator("ADD", [above, less], output),
    ]


def prelu(editor: GraphEditor, operator: OperatorT) -> Operators:
    """RELU(x) + slopes * MINIMUM(x, 0)."""
    (x, slopes), output = operator.inputs, operator.outputs[0]
    above, below, sloped = (editor.like(output, name) for name in ("above", "below", "sloped"))
    zero = editor.constant(output, "zero", 0.0)
    return [
        editor.operator("RELU", [x], above),
        editor.operator("MINIMUM", [x, zero], below),
        editor.operator("MUL", [below, slopes], sloped),
        editor.operator("ADD", [above, sloped], output),
    ]


def clipped_at_one(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MINIMUM(MAXIMUM(x, -1), 1)."""
    output = operator.outputs[0]
    least, most = (
        editor.constant(output, name, value) for name, value in (("least", -1), ("most", 1))
    )
    raised = editor.like(output, "raised")
    return [
        editor.operator("MAXIMUM", [operator.inputs[0], least], raised),
        editor.operator("MINIMUM", [raised, most], output),
    ]


def hard_swish(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(x, RELU6(x + 3) / 6)."""
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    x, output = operator.inputs[0], operator.outputs[0]
    gate, share = editor.like(output, "gate"), editor.like(output, "share")
    three, sixth = (
        editor.constant(output, name, value) for name, value in (("three", 3), ("sixth", 1 / 6))
    )
    relu6 = ActivationFunctionType.RELU6
    return [
        editor.operator("ADD", [x, three], gate, fusedActivationFunction=relu6),
        editor.operator("MUL", [gate, sixth], share),
        editor.operator("MUL", [x, share], output),
    ]


def _reduced(editor: GraphEditor, index: int, suffix: str) -> int:
    return editor.like(index, suffix, (*editor.shape(index)[:-1], 1))


def _last_axis(editor: GraphEditor, index: int) -> int:
    axis = len(editor.shape(index)) - 1
    return editor.constant(index, "last_axis", [axis], "int32")


def log_softmax(editor: GraphEditor, operator: OperatorT) -> Operators:
    """The logarithm of the sum of EXP(y) from y, which is x less its largest value."""
    x, output = operator.inputs[0], operator.outputs[0]
    axis = _last_axis(editor, output)
    most, total, log = (_reduced(editor, output, name) for name in ("most", "total", "log"))
    less, power = editor.like(output, "less"), editor.like(output, "power")
    return [
        editor.operator("REDUCE_MAX", [x, axis], most, keepDims=True),
        editor.operator("SUB", [x, most], less),
        editor.operator("EXP", [less], power),
        editor.operator("SUM", [power, axis], total, keepDims=True),
        editor.operator("LOG", [total], log),
        editor.operator("SUB", [less, log], output),
    ]


def l2_normalization(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(x, RSQRT(SUM(MUL(x, x))))."""
    x, output = operator.inputs[0], operator.outputs[0]
    axis = _last_axis(editor, output)
    squares = editor.like(output, "squares")
    total, raised, inverse = (
        _reduced(editor, output, name) for name in ("total", "raised", "inverse")
    )
    least = editor.constant(output, "least", _LEAST_LENGTH**2)
    return [
        editor.operator("MUL", [x, x], squares),
        editor.operator("SUM", [squares, axis], total, keepDims=True),
        editor.operator("MAXIMUM", [total, least], raised),
        editor.operator("RSQRT", [raised], inverse),
        editor.operator("MUL", [x, inverse], output),
    ]


def response_normalization(editor: GraphEditor, operator: OperatorT) -> Operators:
    """MUL(x, y ** -beta), where FULLY_CONNECTED sums the squares of neighbors into y."""
    import numpy as np

    options = operator.builtinOptions
    x, output = operator.inputs[0], operator.outputs[0]
    channels, radius = editor.shape(x)[-1], int(options.radius)
    distance = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
    weights = editor.constant(output, "neighbors", (distance <= radius) * options.alpha)
    bias = editor.constant(output, "bias", np.full(channels, options.bias))
    squares, total, scale = (editor.like(output, name) for name in ("squares", "total", "scale"))
    before = [
        editor.operator("MUL", [x, x], squares),
        editor.operator("FULLY_CONNECTED", [squares, weights, bias], total, keepNumDims=True),
    ]
    if math.isclose(options.beta, 0.5):
        return [
            *before,
            editor.operator("RSQRT", [total], scale),
            editor.operator("MUL", [x, scale], output),
        ]
    log, scaled = editor.like(output, "log"), editor.like(output, "scaled")
    exponent = editor.constant(output, "exponent", -options.beta)
    return [
        *before,
        editor.operator("LOG", [total], log),
        editor.operator("MUL", [log, exponent], scaled),
        editor.operator("EXP", [scaled], scale),
        editor.operator("MUL", [x, scale], output),
    ]


def cumulative_sum(editor: GraphEditor, operator: OperatorT) -> Operators:
    """FULLY_CONNECTED with a triangle of ones, between two TRANSPOSE where the axis is inner."""
    import numpy as np

    x, output = operator.inputs[0], operator.outputs[0]
    axes, shape = editor.value(operator.inputs[1]), editor.shape(x)
    if axes is None or len(shape) < 2:
        return None
    axis = int(axes.reshape(-1)[0]) % len(shape)
    count, last = shape[axis], len(shape) - 1
    if editor.is_open(x, axis) or count > _MOST_SUMMED:
        return None
    options = operator.builtinOptions
    ones = np.tril(np.ones((count, count)), -1 if options.exclusive else 0)
    weights = editor.constant(output, "triangle", ones.T if options.reverse else ones)
    if axis == last:
        return [editor.operator("FULLY_CONNECTED", [x, weights, -1], output, keepNumDims=True)]
    if axis == 0:
        return None
    order = list(range(len(shape)))
    order[axis], order[last] = order[last], order[axis]
    turned_shape = [shape[each] for each in order]
    turned, summed = (editor.like(x, name, turned_shape) for name in ("turned", "summed"))
    permutation = editor.constant(output, "order", order, "int32")
    return [
        editor.operator("TRANSPOSE", [x, permutation], turned),
        editor.operator("FULLY_CONNECTED", [turned, weights, -1], summed, keepNumDims=True),
        editor.operator("TRANSPOSE", [summed, permutation], output),
    ]


def moved_blocks(editor: GraphEditor, operator: OperatorT) -> Operators:
    """DEPTH_TO_SPACE or SPACE_TO_DEPTH as RESHAPE, TRANSPOSE and RESHAPE."""
    x, output = operator.inputs[0], operator.outputs[0]
    size = int(operator.builtinOptions.blockSize)
    if any(editor.is_open(x, axis) for axis in (1, 2, 3)):
        return None
    is_deep = editor.name(operator) == "DEPTH_TO_SPACE"
    batch, height, width, channels = editor.shape(x)
    if is_deep:
        inner = [batch * height, width, size, channels // size]
    else:
        inner = [batch * height // size, size, width // size, size * channels]
    turned = [inner[0], inner[2], inner[1], inner[3]]
    before, after = editor.like(x, "rows", inner), editor.like(x, "turned", turned)
    order = editor.constant(output, "order", [0, 2, 1, 3], "int32")
    target = list(editor.shape(output))
    shapes = [
        editor.constant(output, name, [-1, *values[1:]], "int32")
        for name, values in (("inner_shape", inner), ("outer_shape", target))
    ]
    return [
        editor.operator("RESHAPE", [x, shapes[0]], before, newShape=[-1, *inner[1:]]),
        editor.operator("TRANSPOSE", [before, order], after),
        editor.operator("RESHAPE", [after, shapes[1]], output, newShape=[-1, *target[1:]]),
    ]


def largest_index(editor: GraphEditor, operator: OperatorT) -> Operators:
    """The index of TOPK_V2 with one place, which along the last axis is ARG_MAX's index."""
    from ai_edge_litert.schema_py_generated import TensorType

    x, output = operator.inputs[0], operator.outputs[0]
    axes, shape = editor.value(operator.inputs[1]), editor.shape(x)
    if axes is None or int(axes.reshape(-1)[0]) % len(shape) != len(shape) - 1:
        return None
    if len(shape) > 1 and any(editor.is_open(x, axis) for axis in range(1, len(shape))):
        return None
    values = editor.like(x, "largest", (*shape[:-1], 1))
    indices = editor.like(x, "index", (*shape[:-1], 1))
    editor.tensor(indices).type = TensorType.INT32
    count = editor.constant(output, "count", 1, "int32")
    target = [-1, *editor.shape(output)[1:]] if len(shape) > 1 else []
    new_shape = editor.constant(output, "shape", target, "int32")
    operators = [editor.operator("TOPK_V2", [x, count], [values, indices])]
    kind = editor.tensor(output).type
    if kind != TensorType.INT32:
        cast = editor.like(indices, "cast")
        editor.tensor(cast).type = kind
        operators.append(editor.operator("CAST", [indices], cast))
        indices = cast
    return [*operators, editor.operator("RESHAPE", [indices, new_shape], output, newShape=target)]


def one_hot(editor: GraphEditor, operator: OperatorT) -> Operators:
    """SELECT_V2 by a ONE_HOT of booleans."""
    from ai_edge_litert.schema_py_generated import TensorType

    indices, depth, on, off = operator.inputs
    output = operator.outputs[0]
    is_hot = editor.like(output, "is_hot")
    editor.tensor(is_hot).type = TensorType.BOOL
    yes, no = (editor.constant(output, str(value), value, "bool") for value in (True, False))
    axis = operator.builtinOptions.axis
    return [
        editor.operator("ONE_HOT", [indices, depth, yes, no], is_hot, axis=axis),
        editor.operator("SELECT_V2", [is_hot, on, off], output),
    ]


def has_norms_of_one(editor: GraphEditor) -> bool:
    """Whether a value is normalized by its deviation from itself."""
    return bool(_lonely(editor))


def drop_norms_of_one(editor: GraphEditor) -> bool:
    """Give what reads a normalization of one value the constant that this is.

    LayerNormalization of one channel is x k + (offset - x k) with k = 1 / sqrt(epsilon): the offset
    in float, noise of 1000 times a step in integers, and kernels end the process where they meet
    the tiny scale of what is always 0. Whether there was any.
    """
    dropped = [_drop_norm(editor, x) for x in _lonely(editor)]
    return any(dropped)


def _lonely(editor: GraphEditor) -> set[int]:
    return {
        int(operator.inputs[0])
        for operator in editor.graph.operators
        if editor.name(operator) == "SQUARED_DIFFERENCE"
        and operator.inputs[0] == operator.inputs[1]
        and editor.is_float(operator.inputs[0])
    }


def _drop_norm(editor: GraphEditor, x: int) -> bool:
    import numpy as np

    # The factor and the offset by which a tensor follows from x.
    lines: dict[int, _Line] = {x: (1.0, 0.0)}
    changed = False
    for operator in editor.graph.operators:
        output = operator.outputs[0] if operator.outputs else x
        line = None if output == x else _line(editor, operator, lines)
        if line is None:
            continue
        lines[output] = line
        if np.any(line[0]):
            continue
        for reader in editor.readers(output):
            others = [each for each in reader.inputs if each != output]
            # The constant is of one value: the other gives the result its shape.
            if editor.name(reader) not in ("ADD", "MUL", "SUB") or len(others) != 1:
                continue
            if editor.is_constant(others[0]) or editor.shape(others[0]) != editor.shape(output):
                continue
            constant = editor.constant(output, "constant", line[1])
            reader.inputs = [constant if each == output else each for each in reader.inputs]
            changed = True
    return changed


def _line(editor: GraphEditor, operator: OperatorT, lines: Mapping[int, _Line]) -> _Line | None:
    """What an operator makes of such tensors and of constants; None if it is another."""
    import numpy as np

    name = editor.name(operator)
    if name == "SQUARED_DIFFERENCE" and operator.inputs[0] == operator.inputs[1]:
        return (0.0, 0.0) if operator.inputs[0] in lines else None
    if name not in ("ADD", "MUL", "NEG", "RSQRT", "SUB") or activation_of(operator):
        return None
    given: list[_Line] = []
    for index in operator.inputs:
        value = editor.value(index)
        if index not in lines and value is None:
            return None
        given.append(lines[index] if value is None else (0.0, value))
    if not any(each in lines for each in operator.inputs):
        return None
    factor, offset = given[0]
    if name == "NEG":
        return -factor, -offset
    if name == "RSQRT":
        return None if np.any(factor) or np.any(offset <= 0) else (0.0, offset**-0.5)
    other_factor, other_offset = given[1]
    if name == "ADD":
        return factor + other_factor, offset + other_offset
    if name == "SUB":
        return factor - other_factor, offset - other_offset
    if np.any(factor) and np.any(other_factor):
        return None
    return factor * other_offset + other_factor * offset, offset * other_offset
