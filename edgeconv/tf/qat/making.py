"""New tf_keras layers, each under a name of its own, and what stands in the way of one."""

from __future__ import annotations

import re
from typing import Any

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class NoCounterpart(Exception):
    """A layer or operation that no layer of tf_keras computes; says why, in one clause."""


class Unmatched:
    """Stands for a value that is only known to be a shape or a mask, and goes into no layer."""


class LayerFactory:
    """Makes layers of tf_keras whose names are all different.

    `prefix` is what the names of the layers made next begin with: the layer or operation of the
    walked model that they are for, behind those of the nested models it is in.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self.prefix: tuple[str, ...] = ()

    def name(self, *after: str) -> str:
        """A name that no other layer has; the models around a layer are in it where need be."""
        own = "_".join((self.prefix[-1], *after))
        longer = "_".join((*self.prefix, *after))
        numbered = (f"{longer}_{number}" for number in range(1, len(self._taken) + 2))
        candidates = map(valid_name, (own, longer, *numbered))
        chosen = next(one for one in candidates if one not in self._taken)
        self._taken.add(chosen)
        return chosen

    def layer(self, kind: str, given: Any, *after: str, **config: Any) -> Any:
        """The output of a new layer of class `kind` for the tensors `given`."""
        import tf_keras

        return getattr(tf_keras.layers, kind)(name=self.name(*after), **config)(given)


def valid_name(name: str) -> str:
    """The name with other characters where TensorFlow would refuse it."""
    # TensorFlow names scopes after layers, and takes less than Keras 3 does.
    cleaned = _NOT_IN_A_NAME.sub("_", name)
    return cleaned if cleaned[0].isalnum() else f"layer{cleaned}"
