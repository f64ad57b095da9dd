"""Calls of operations, of Keras 3 and of TensorFlow, in one form."""

from __future__ import annotations

from typing import Any, NamedTuple


class OpCall(NamedTuple):
    """A call of an operation: its arguments by name, in order, and what it gives."""

    arguments: dict[str, Any]
    outputs: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def pair(self) -> tuple[Any, Any]:
        """The first two arguments."""
        one, other, *_ = self.arguments.values()
        return one, other

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the first thing it gives."""
        return tuple(self.outputs[0].shape)

    def get(self, *names: str, default: Any = None) -> Any:
        """An argument by any of its names."""
        return next((self.arguments[name] for name in names if name in self.arguments), default)


def is_tensor(value: Any) -> bool:
    """Whether a value is a symbolic tensor of the model that is being made."""
    import tf_keras

    return isinstance(value, tf_keras.__internal__.KerasTensor)
