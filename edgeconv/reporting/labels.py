"""Labels for the points of a plot, placed so that none covers another label or a point.

Vega's label transform needs a canvas, which vl-convert does not have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_CELL = 7.4  # The width of a character at the size that labels have, on the wide side.
_HEIGHT = 15.0
_MARK = 6.0
_MOST_CELLS = 26
# Above and below come first: horizontal lines cross many points.
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
class Label:
    """A text centered at (x, y) of a plot, y downwards. If `is_far`, a line leads to its point."""

    text: str
    x: float
    y: float
    is_far: bool = False

    @property
    def half(self) -> tuple[float, float]:
        """Half of its width and height; without a text it is the mark of a point."""
        return (cell_len(self.text) * _CELL / 2, _HEIGHT / 2) if self.text else (_MARK, _MARK)

    def meets(self, other: Label) -> bool:
        """Whether the two overlap."""
        (width, height), (its_width, its_height) = self.half, other.half
        return (
            abs(self.x - other.x) < width + its_width
            and abs(self.y - other.y) < height + its_height
        )

    def within(self, width: float, height: float) -> bool:
        """Whether all of it is inside a plot of this size."""
        across, up = self.half
        return across <= self.x <= width - across and up <= self.y <= height - up


def place_labels(
    points: Sequence[tuple[float, float]], texts: Sequence[str], width: float, height: float
) -> list[Label | None]:
    """A label for every point, in order; None where there is no room for one."""
    taken = [Label("", x, y) for x, y in points]
    labels: list[Label | None] = []
    for point, text in zip(points, texts, strict=True):
        places = (_near(point, fit_cells(text), ring, angle) for ring, angle in _PLACES)
        inside = (label for label in places if label.within(width, height))
        free = (label for label in inside if not any(map(label.meets, taken)))
        label = next(free, None)
        labels.append(label)
        taken += [label] if label else []
    return labels


def fit_cells(text: str, most_cells: int = _MOST_CELLS) -> str:
    """The text, with an ellipsis where it is wider than `most_cells`."""
    if cell_len(text) <= most_cells:
        return text
    return set_cell_size(text, most_cells - 1).rstrip() + "…"


def _near(point: tuple[float, float], text: str, ring: int, degrees: int) -> Label:
    # The center is so far away that the edge of the label touches the ring.
    x = point[0] + math.cos(math.radians(degrees)) * (ring - _MARK / 2 + Label(text, 0, 0).half[0])
    y = point[1] + math.sin(math.radians(degrees)) * ring
    return Label(text, round(x, 1), round(y, 1), is_far=ring in _FAR)
