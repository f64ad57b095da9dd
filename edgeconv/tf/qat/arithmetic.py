"""Sums, products and limits of tensors as layers of tf_keras.

A number in the model, such as in `x + 3`, becomes part of a Rescaling layer. Raises
`NoCounterpart` where no layers compute the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.tf.qat.activations import clipped
from edgeconv.tf.qat.calls import Call, is_tensor
from edgeconv.tf.qat.making import Making, NoCounterpart

if TYPE_CHECKING:
    from collections.abc import Callable

    # Of a tensor and a constant.
    WithConstant = Callable[[Making, Any, Any], Any]


def either(
    kind: str, with_constant: WithConstant, constant_first: WithConstant | None = None
) -> Callable[[Making, Call], Any]:
    """What computes an operation of two: a layer of class `kind`, or one with a constant.

    `constant_first` is for a constant that comes before the tensor, where that matters.
    """

    def compute(making: Making, call: Call) -> Any:
        one, other = call.pair
        if is_tensor(one) and is_tensor(other):
            if len(one.shape) != len(other.shape):
                raise NoCounterpart("its tensors have different numbers of dimensions")
            return making.layer(kind, [one, other])
        if is_tensor(one):
            return with_constant(making, one, other)
        return (constant_first or with_constant)(making, other, one)

    return compute


def scaled(making: Making, tensor: Any, scale: Any, offset: Any) -> Any:
    """A tensor times `scale` plus `offset`: numbers, or arrays that do not vary by sample."""
    factors = [_plain(one, tensor) for one in (scale, offset)]
    if not tensor.dtype.is_floating:
        raise NoCounterpart("it computes with integers")
    return making.layer("Rescaling", tensor, scale=factors[0], offset=factors[1])


def _plain(value: Any, tensor: Any) -> Any:
    """A constant as numbers in nested lists, as a layer's settings can hold it."""
    import numpy as np

    array = np.asarray(value, dtype="float32")
    if array.ndim > len(tensor.shape) or (array.ndim == len(tensor.shape) and len(array) != 1):
        raise NoCounterpart("it has a constant with a number for each sample")
    return array.tolist()


def _inverse(value: Any) -> Any:
    import numpy as np

    return 1.0 / np.asarray(value, dtype="float64")


def _negative(value: Any) -> Any:
    import numpy as np

    return -np.asarray(value, dtype="float64")


def _minimum(making: Making, tensor: Any, limit: Any) -> Any:
    below = making.layer("Rescaling", tensor, "below", scale=-1.0, offset=number(limit))
    kept = making.layer("ReLU", below, "clip")
    return making.layer("Rescaling", kept, scale=-1.0, offset=number(limit))


add = either("Add", lambda making, tensor, value: scaled(making, tensor, 1.0, value))
multiply = either("Multiply", lambda making, tensor, value: scaled(making, tensor, value, 0.0))
subtract = either(
    "Subtract",
    lambda making, tensor, value: scaled(making, tensor, 1.0, _negative(value)),
    lambda making, tensor, value: scaled(making, tensor, -1.0, value),
)
maximum = either(
    "Maximum", lambda making, tensor, limit: clipped(making, tensor, number(limit), None)
)
minimum = either("Minimum", _minimum)


def divide(making: Making, call: Call) -> Any:
    """A tensor over a constant."""
    one, other = call.pair
    if is_tensor(other):
        raise NoCounterpart("no layer of tf_keras divides by a tensor")
    return scaled(making, one, _inverse(other), 0.0)


def power(making: Making, call: Call) -> Any:
    """The square of a tensor."""
    tensor, exponent = call.pair
    if is_tensor(exponent) or number(exponent) != 2.0:
        raise NoCounterpart("no layer of tf_keras computes a power other than the square")
    return making.layer("Multiply", [tensor, tensor])


def clip(making: Making, call: Call) -> Any:
    """A tensor between two numbers."""
    low = number(call.get("x_min", "clip_value_min"))
    return clipped(making, call.first, low, number(call.get("x_max", "clip_value_max")))


def number(value: Any) -> float:
    """A constant that has to be one number."""
    import numpy as np

    if is_tensor(value) or np.ndim(value):
        raise NoCounterpart("it takes a limit that is not one number")
    return float(value)


def absolute(making: Making, call: Call) -> Any:
    """The magnitudes of a tensor."""
    negative = making.layer("Rescaling", call.first, "negative", scale=-1.0)
    return making.layer("Maximum", [call.first, negative])


def matmul(making: Making, call: Call) -> Any:
    """The product of two tensors of matrices, one matrix a sample."""
    one, other = call.pair
    if not (is_tensor(one) and is_tensor(other)):
        raise NoCounterpart("no layer of tf_keras multiplies a tensor with such a matrix")
    if {len(one.shape), len(other.shape)} != {3}:
        raise NoCounterpart("tf_keras's Dot multiplies tensors of three dimensions")
    axes = (1 if call.get("transpose_a") else 2, 2 if call.get("transpose_b") else 1)
    return making.layer("Dot", [one, other], axes=axes)
