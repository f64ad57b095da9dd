"""Fixing dynamic dimensions of a model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence


class FixedShapes(msgspec.Struct, frozen=True, kw_only=True):
    """Which dynamic dimensions of a model's inputs are fixed, and to what.

    `by_input` has whole shapes, -1 where a dimension stays as it is; `batch` is the first
    dimension of the inputs not named there. With `only_open`, what the model has fixed
    already is left at that; without, it must be the same number.
    """

    batch: int | None = None
    by_input: dict[str, tuple[int, ...]] = {}
    only_open: bool = False

    @property
    def fixes(self) -> bool:
        """Whether anything is to be fixed."""
        return self.batch is not None or bool(self.by_input)

    def of(self, name: str, shape: Sequence[int | None]) -> list[int | None]:
        """`shape` of the input `name`, None for a dynamic dimension, with this applied.

        Raises `InputRefused` where a dimension is fixed to another number already.
        """
        if name in self.by_input:
            return self._whole(name, list(shape), self.by_input[name])
        if self.batch is None:
            return list(shape)
        if not shape or shape[0] not in (None, self.batch):
            if self.only_open:
                return list(shape)
            raise InputRefused(
                f"--batch {self.batch}: input {name!r} has shape {_text(shape)}, whose leading "
                "dimension is not dynamic",
                hint="leave --batch away: the model's batch is fixed already",
            )
        return [self.batch, *shape[1:]]

    def _whole(
        self, name: str, shape: list[int | None], wanted: tuple[int, ...]
    ) -> list[int | None]:
        pairs = list(zip(shape, wanted, strict=False))
        clash = any(want not in (-1, have) for have, want in pairs if have is not None)
        if len(shape) != len(wanted) or (clash and not self.only_open):
            raise InputRefused(
                f"--shape {name}={'x'.join('?' if w == -1 else str(w) for w in wanted)}: the "
                f"model's input has shape {_text(shape)}",
                hint="give every dimension, the model's own where it is fixed; ? leaves one open",
            )
        return [want if have is None and want != -1 else have for have, want in pairs]


def _text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
