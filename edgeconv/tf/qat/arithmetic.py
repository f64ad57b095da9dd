"""Sums, products and limits of tensors as layers of tf_keras.

A number in the model, such as in `x + 3`, becomes part of a Rescaling layer. Raises
`NoCounterpart` where no layers compute the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.tf.qat.activations import clipped
from edgeconv.tf.qat.calls import OpCall, is_tensor
from edgeconv.tf.qat.making import LayerFactory, NoCounterpart

if TYPE_CHECKING:
    from collections.abc import Callable

    # Of a tensor and a constant.
    WithConstant = Callable[[LayerFactory, Any, Any], Any]


def either(
    kind: str, with_constant: WithConstant, constant_first: WithConstant | None = None
) -> Callable[[LayerFactory, OpCall], Any]:
    """What computes an operation of two: a layer of class `kind`, or one with a constant.

    `constant_first` is for a constant that comes before the tensor, where that matters.
    """

    def compute(factory: LayerFactory, call: OpCall) -> Any:
        one, other = call.pair
        if is_tensor(one) and is_tensor(other):
            if len(one.shape) != len(other.shape):
                raise NoCounterpart("its tensors have different numbers of dimensions")
            return factory.layer(kind, [one, other])
        if is_tensor(one):
            return with_constant(factory, one, other)
        return (constant_first or with_constant)(factory, other, one)

    return compute


def scaled(factory: LayerFactory, tensor: Any, scale: Any, offset: Any) -> Any:
    """A tensor times `scale` plus `offset`: numbers, or arrays that do not vary by sample."""
    factors = [_plain(one, tensor) for one in (scale, offset)]
    if not tensor.dtype.is_floating:
        raise NoCounterpart("it computes with integers")
    return factory.layer("Rescaling", tensor, scale=factors[0], offset=factors[1])


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


def _minimum(factory: LayerFactory, tensor: Any, limit: Any) -> Any:
    below = factory.layer("Rescaling", tensor, "below", scale=-1.0, offset=number(limit))
    kept = factory.layer("ReLU", below, "clip")
    return factory.layer("Rescaling", kept, scale=-1.0, offset=number(limit))


add = either("Add", lambda factory, tensor, value: scaled(factory, tensor, 1.0, value))
multiply = either("Multiply", lambda factory, tensor, value: scaled(factory, tensor, value, 0.0))
subtract = either(
    "Subtract",
    lambda factory, tensor, value: scaled(factory, tensor, 1.0, _negative(value)),
    lambda factory, tensor, value: scaled(factory, tensor, -1.0, value),
)
maximum = either(
    "Maximum", lambda factory, tensor, limit: clipped(factory, tensor, number(limit), None)
)
minimum = either("Minimum", _minimum)


def divide(factory: LayerFactory, call: OpCall) -> Any:
    """A tensor over a constant."""
    one, other = call.pair
    if is_tensor(other):
        raise NoCounterpart("no layer of tf_keras divides by a tensor")
    return scaled(factory, one, _inverse(other), 0.0)


def power(factory: LayerFactory, call: OpCall) -> Any:
    """The square of a tensor."""
    tensor, exponent = call.pair
    if is_tensor(exponent) or number(exponent) != 2.0:
        raise NoCounterpart("no layer of tf_keras computes a power other than the square")
    return factory.layer("Multiply", [tensor, tensor])


def clip(factory: LayerFactory, call: OpCall) -> Any:
    """A tensor between two numbers."""
    low = number(call.get("x_min", "clip_value_min"))
    return clipped(factory, call.first, low, number(call.get("x_max", "clip_value_max")))


def number(value: Any) -> float:
    """A constant that has to be one number."""
    import numpy as np

    if is_tensor(value) or np.ndim(value):
        raise NoCounterpart("it takes a limit that is not one number")
    return float(value)


def absolute(factory: LayerFactory, call: OpCall) -> Any:
    """The magnitudes of a tensor."""
    negative = factory.layer("Rescaling", call.first, "negative", scale=-1.0)
    return factory.layer("Maximum", [call.first, negative])


def matmul(factory: LayerFactory, call: OpCall) -> Any:
    """The product of two tensors of matrices, one matrix a sample."""
    one, other = call.pair
    if not (is_tensor(one) and is_tensor(other)):
        raise NoCounterpart("no layer of tf_keras multiplies a tensor with such a matrix")
    if {len(one.shape), len(other.shape)} != {3}:
        raise NoCounterpart("tf_keras's Dot multiplies tensors of three dimensions")
    axes = (1 if call.get("transpose_a") else 2, 2 if call.get("transpose_b") else 1)
    return factory.layer("Dot", [one, other], axes=axes)
