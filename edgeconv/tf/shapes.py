"""Fixing dynamic dimensions of a model's inputs."""

from collections.abc import Mapping, Sequence

import msgspec

from edgeconv.types.errors import InputRefused


class FixedShapes(msgspec.Struct, frozen=True, kw_only=True):
    """Which dynamic dimensions of a model's inputs are fixed, and to what.

    `by_input` has whole shapes, -1 where a dimension stays as it is; `batch` is the first
    dimension of the inputs not named there. With `only_open`, dimensions that the model has fixed
    stay; otherwise they must be the same number.
    """

    batch: int | None = None
    by_input: dict[str, tuple[int, ...]] = {}
    only_open: bool = False

    @property
    def fixes(self) -> bool:
        """Whether any dimension is fixed."""
        return self.batch is not None or bool(self.by_input)

    def of(self, name: str, shape: Sequence[int | None]) -> list[int | None]:
        """`shape` of the input `name`, None for a dynamic dimension, with this applied.

        Raises `InputRefused` if the model fixes a dimension to another number.
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
                hint="remove --batch: the model's batch is fixed already",
            )
        return [self.batch, *shape[1:]]

    def _whole(self, name: str, shape: list[int | None], new: tuple[int, ...]) -> list[int | None]:
        pairs = list(zip(shape, new, strict=False))
        clash = any(size not in (-1, own) for own, size in pairs if own is not None)
        if len(shape) != len(new) or (clash and not self.only_open):
            raise InputRefused(
                f"--shape {name}={'x'.join('?' if size == -1 else str(size) for size in new)}: the "
                f"model's input has shape {_text(shape)}",
                hint="give every dimension, the model's own where it is fixed; ? leaves one open",
            )
        return [size if own is None and size != -1 else own for own, size in pairs]


def shape_hint(shapes: Mapping[str, Sequence[int | None]]) -> str:
    """The beginning of a hint that fixes the dimensions within a sample, by the inputs' names.

    "" where none is open, None or -1: the batch is fixed without being asked for.
    """
    opened = {
        name: [1 if shape[0] in (None, -1) else shape[0], *shape[1:]]
        for name, shape in shapes.items()
        if any(size in (None, -1) for size in shape[1:])
    }
    texts = (
        f"--shape {name}={'x'.join('?' if size in (None, -1) else str(size) for size in shape)}"
        for name, shape in opened.items()
    )
    options = " ".join(texts)
    return f"fix the open dimensions, with a number for each ? of {options}; or " if options else ""


def _text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
