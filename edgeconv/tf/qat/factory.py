"""New tf_keras layers with unique names, and calls of operations to build them for."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.tf.lazy import tf_keras

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class NoCounterpart(Exception):
    """A layer or operation that no layer of tf_keras computes; says why, in one clause."""


class Unmatched:
    """Stands for a value that is only used as a shape or a mask, and goes into no layer."""


class OpCall(NamedTuple):
    """A call of an operation of Keras 3 or TensorFlow: ordered arguments by name, and outputs."""

    arguments: dict[str, Any]
    outputs: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def pair(self) -> tuple[Any, Any]:
        """The first two arguments."""
        left, right, *_ = self.arguments.values()
        return left, right

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the first output."""
        return tuple(self.outputs[0].shape)

    def get(self, *names: str, default: Any = None) -> Any:
        """An argument by any of its names."""
        return next((self.arguments[name] for name in names if name in self.arguments), default)


class LayerFactory:
    """Builds layers of tf_keras with unique names.

    `prefix` begins the names of the next layers: the path of the layer or operation of the walked
    model that they are for.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self.prefix: tuple[str, ...] = ()

    def name(self, *after: str) -> str:
        """A unique name; it has those of the models around a layer where needed."""
        own = "_".join((self.prefix[-1], *after))
        longer = "_".join((*self.prefix, *after))
        numbered = (f"{longer}_{number}" for number in range(1, len(self._taken) + 2))
        candidates = map(valid_name, (own, longer, *numbered))
        chosen = next(candidate for candidate in candidates if candidate not in self._taken)
        self._taken.add(chosen)
        return chosen

    def layer(self, kind: str, inputs: Any, *after: str, **config: Any) -> Any:
        """The output of a new layer of class `kind` for the tensors `inputs`."""
        return getattr(tf_keras.layers, kind)(name=self.name(*after), **config)(inputs)


def valid_name(name: str) -> str:
    """The name with other characters where TensorFlow refuses it, as it does more than Keras 3."""
    cleaned = _NOT_IN_A_NAME.sub("_", name)
    return cleaned if cleaned[0].isalnum() else f"layer{cleaned}"


def is_tensor(value: Any) -> bool:
    """Whether a value is a symbolic tensor of tf_keras."""
    return isinstance(value, tf_keras.__internal__.KerasTensor)


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
