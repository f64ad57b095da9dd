"""Activation functions of Keras 3 as activations and layers of tf_keras.

One function has the same name in both and is another: `hard_sigmoid` has a slope of 1/6 in
Keras 3, and of 1/5 in tf_keras.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.tf.qat.factory import LayerFactory, NoCounterpart

if TYPE_CHECKING:
    from collections.abc import Callable

# By the name in Keras 3.
_IN_TF_KERAS = {
    **{name: name for name in ("linear", "relu", "sigmoid", "tanh", "softmax", "softplus")},
    **{name: name for name in ("softsign", "elu", "selu", "exponential", "gelu", "mish")},
    "silu": "swish",
    "swish": "swish",
}


def fusable(name: str) -> str | None:
    """The name in tf_keras of a function of Keras 3; None where tf_keras has none."""
    return _IN_TF_KERAS.get(name)


def apply_activation(factory: LayerFactory, name: str, tensor: Any) -> Any:
    """A tensor after a function of Keras 3, by its name there. Raises `NoCounterpart`."""
    fused = fusable(name)
    if fused == "linear":
        return tensor
    if fused:
        return factory.layer("Activation", tensor, activation=fused)
    if name not in _FROM_LAYERS:
        raise NoCounterpart(f"tf_keras has no activation {name!r}")
    return _FROM_LAYERS[name](factory, tensor)


def clip_between(factory: LayerFactory, tensor: Any, low: float, high: float | None) -> Any:
    """A tensor between two numbers, or above one."""
    span = None if high is None else high - low
    shifted = factory.layer("Rescaling", tensor, "from", scale=1.0, offset=-low) if low else tensor
    kept = factory.layer("ReLU", shifted, "clip", max_value=span)
    return factory.layer("Rescaling", kept, "to", scale=1.0, offset=low) if low else kept


def gelu_by_tanh(factory: LayerFactory, x: Any) -> Any:
    """The approximation of GELU by a tanh (Hendrycks and Gimpel 2016, section 2)."""
    slope = math.sqrt(2 / math.pi)
    square = factory.layer("Multiply", [x, x], "square")
    inner = factory.layer("Rescaling", square, "inner", scale=0.044715 * slope, offset=slope)
    cubic = factory.layer("Multiply", [x, inner], "cubic")
    step = factory.layer("Activation", cubic, "tanh", activation="tanh")
    share = factory.layer("Rescaling", step, "share", scale=0.5, offset=0.5)
    return factory.layer("Multiply", [x, share])


def leaky_relu(factory: LayerFactory, tensor: Any, slope: float) -> Any:
    """A ReLU with a slope below zero."""
    return factory.layer("LeakyReLU", tensor, alpha=slope)


def _hard_sigmoid(factory: LayerFactory, tensor: Any) -> Any:
    shifted = factory.layer("Rescaling", tensor, "shift", scale=1.0, offset=3.0)
    kept = factory.layer("ReLU", shifted, "relu6", max_value=6.0)
    return factory.layer("Rescaling", kept, "sixth", scale=1 / 6)


def _hard_silu(factory: LayerFactory, tensor: Any) -> Any:
    return factory.layer("Multiply", [tensor, _hard_sigmoid(factory, tensor)])


_FROM_LAYERS: dict[str, Callable[[LayerFactory, Any], Any]] = {
    "relu6": lambda factory, tensor: factory.layer("ReLU", tensor, max_value=6.0),
    "leaky_relu": lambda factory, tensor: leaky_relu(factory, tensor, 0.2),
    "hard_tanh": lambda factory, tensor: clip_between(factory, tensor, -1.0, 1.0),
    "hard_sigmoid": _hard_sigmoid,
    "hard_silu": _hard_silu,
    "hard_swish": _hard_silu,
}
