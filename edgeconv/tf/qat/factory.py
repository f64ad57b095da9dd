"""New tf_keras layers with unique names, and calls of operations to build them for."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from edgeconv.tf.lazy import tf_keras

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
