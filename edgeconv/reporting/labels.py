"""Labels beside the points of a plot, so placed that none lies on another or on a point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CELL = 7.4  # The width of a character at the size that labels have, on the wide side.
_HEIGHT = 15.0
_MARK = 6.0
_MOST_CELLS = 26
# Above and below come first: there are lines from side to side through many points.
_UPRIGHT = (-90, -50, -130, 90, 50, 130)
_SIDEWAYS = (0, 180, -20, 20, 160, 200)
_NEAR = (14, 21)
_FAR = (30, 42, 56, 72, 90, 110, 135, 160)
_PLACES = (
    *((ring, angle) for angle in _UPRIGHT for ring in _NEAR),
    *((ring, angle) for angle in _SIDEWAYS for ring in _NEAR),
    *((ring, angle) for ring in _FAR for angle in (*_UPRIGHT, *_SIDEWAYS)),
)


@dataclass(frozen=True)
class Box:
    """A rectangle in the coordinates of a plot, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two have more than an edge in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether no part of this box is outside the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True)
class Label:
    """The text of a point and where it stands; `far` ones need a line to their point."""

    text: str
    box: Box
    far: bool


def place(
    points: Sequence[tuple[float, float]], texts: Sequence[str], area: Box
) -> list[Label | None]:
    """A label for every point, in order; None where there is no room left for one."""
    taken = [Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in points]
    labels: list[Label | None] = []
    for point, text in zip(points, texts, strict=True):
        label = _first_free(point, shortened(text), area, taken)
        if label:
            taken.append(label.box)
        labels.append(label)
    return labels


def shortened(text: str, most_cells: int = _MOST_CELLS) -> str:
    """The text, with an ellipsis where it is wider than `most_cells`."""
    if cell_len(text) <= most_cells:
        return text
    return set_cell_size(text, most_cells - 1).rstrip() + "…"


def _first_free(point: tuple[float, float], text: str, area: Box, taken: list[Box]) -> Label | None:
    for ring, box in _candidates(point, cell_len(text) * _CELL):
        if box.within(area) and not any(box.meets(other) for other in taken):
            return Label(text, box, far=ring in _FAR)
    return None


def _candidates(point: tuple[float, float], width: float) -> Iterator[tuple[int, Box]]:
    for ring, degrees in _PLACES:
        # The middle of the label is as far away as lets its edge touch the ring.
        x = point[0] + math.cos(math.radians(degrees)) * (ring - _MARK / 2 + width / 2)
        y = point[1] + math.sin(math.radians(degrees)) * ring
        yield ring, Box(x - width / 2, y - _HEIGHT / 2, x + width / 2, y + _HEIGHT / 2)
