"""Sums, products and limits of tensors as layers of tf_keras.

A number in the model, such as in `x + 3`, becomes part of a Rescaling layer. Raises
`NoCounterpart` where no layers compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgeconv.tf.qat.factory import LayerFactory, NoCounterpart, OpCall, clip_between, is_tensor
from edgeconv.tf.qat.kinds import class_name

# Of a tensor and a constant.
WithConstant = Callable[[LayerFactory, Any, Any], Any]


def binary(
    kind: str, with_constant: WithConstant, constant_first: WithConstant | None = None
) -> Callable[[LayerFactory, OpCall], Any]:
    """An operation of two arguments: a layer of class `kind`, or one with a constant.

    `constant_first` is for a constant before the tensor, where that matters.
    """

    def compute(factory: LayerFactory, call: OpCall) -> Any:
        left, right = call.pair
        if is_tensor(left) and is_tensor(right):
            if len(left.shape) != len(right.shape):
                raise NoCounterpart("its tensors have different numbers of dimensions")
            return factory.layer(kind, [left, right])
        if is_tensor(left):
            return with_constant(factory, left, right)
        return (constant_first or with_constant)(factory, right, left)

    return compute


def affine(factory: LayerFactory, tensor: Any, scale: Any, offset: Any) -> Any:
    """A tensor times `scale` plus `offset`: numbers, or arrays that do not vary by sample."""
    settings = [_as_lists(value, tensor) for value in (scale, offset)]
    if not tensor.dtype.is_floating:
        raise NoCounterpart("it computes with integers")
    before = tensor._keras_history.layer
    if class_name(before) == "Rescaling" and before.input.dtype.is_floating:
        # `x * 2 + 1` is one layer.
        factor = np.asarray(scale, "float64")
        scale, offset = factor * before.scale, factor * before.offset + np.asarray(offset)
        tensor, settings = before.input, [_as_lists(value, tensor) for value in (scale, offset)]
    return factory.layer("Rescaling", tensor, scale=settings[0], offset=settings[1])


def _as_lists(value: Any, tensor: Any) -> Any:
    """A constant as numbers in nested lists, as a layer's settings can hold it."""
    array = np.asarray(value, dtype="float32")
    if array.ndim > len(tensor.shape) or (array.ndim == len(tensor.shape) and len(array) != 1):
        raise NoCounterpart("it has a constant with a number for each sample")
    return array.tolist()


def _minimum(factory: LayerFactory, tensor: Any, limit: Any) -> Any:
    below = factory.layer("Rescaling", tensor, "below", scale=-1.0, offset=number(limit))
    kept = factory.layer("ReLU", below, "clip")
    return factory.layer("Rescaling", kept, scale=-1.0, offset=number(limit))


add = binary("Add", lambda factory, tensor, value: affine(factory, tensor, 1.0, value))
multiply = binary("Multiply", lambda factory, tensor, value: affine(factory, tensor, value, 0.0))
subtract = binary(
    "Subtract",
    lambda factory, tensor, value: affine(factory, tensor, 1.0, -np.asarray(value, "float64")),
    lambda factory, tensor, value: affine(factory, tensor, -1.0, value),
)
maximum = binary(
    "Maximum", lambda factory, tensor, limit: clip_between(factory, tensor, number(limit), None)
)
minimum = binary("Minimum", _minimum)


def divide(factory: LayerFactory, call: OpCall) -> Any:
    """A tensor over a constant."""
    tensor, divisor = call.pair
    if is_tensor(divisor):
        raise NoCounterpart("no layer of tf_keras divides by a tensor")
    return affine(factory, tensor, 1.0 / np.asarray(divisor, "float64"), 0.0)


def power(factory: LayerFactory, call: OpCall) -> Any:
    """The square of a tensor."""
    tensor, exponent = call.pair
    if is_tensor(exponent) or number(exponent) != 2.0:
        raise NoCounterpart("no layer of tf_keras computes a power other than the square")
    return factory.layer("Multiply", [tensor, tensor])


def clip(factory: LayerFactory, call: OpCall) -> Any:
    """A tensor between two numbers."""
    low = number(call.get("x_min", "clip_value_min"))
    return clip_between(factory, call.first, low, number(call.get("x_max", "clip_value_max")))


def number(value: Any) -> float:
    """A constant that has to be one number."""
    if is_tensor(value) or np.ndim(value):
        raise NoCounterpart("it has a limit that is not one number")
    return float(value)


def absolute(factory: LayerFactory, call: OpCall) -> Any:
    """The magnitudes of a tensor."""
    negative = factory.layer("Rescaling", call.first, "negative", scale=-1.0)
    return factory.layer("Maximum", [call.first, negative])


def matmul(factory: LayerFactory, call: OpCall) -> Any:
    """The product of two tensors of matrices, one matrix per sample."""
    left, right = call.pair
    if not (is_tensor(left) and is_tensor(right)):
        raise NoCounterpart("no layer of tf_keras multiplies a tensor with such a matrix")
    if {len(left.shape), len(right.shape)} != {3}:
        raise NoCounterpart("tf_keras's Dot multiplies tensors of three dimensions")
    axes = (1 if call.get("transpose_a") else 2, 2 if call.get("transpose_b") else 1)
    return factory.layer("Dot", [left, right], axes=axes)
