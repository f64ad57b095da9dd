"""Tables of a page as data: cells that know how they sort."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgeconv.reporting import units

Key = float | str | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: its text, a smaller line under it, and what it is sorted by, its text if None.

    `lead` stands before the text as a warning. `share`, 0 to 1, is drawn as a bar under it.
    `kind` is a class of the style sheet.
    """

    text: str
    under: str = ""
    lead: str = ""
    key: Key = None
    kind: str = ""
    share: float | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it is sorted by something else than its text, or not at all."""
        return self.key is not None or self.text == units.ABSENT or self.kind == "remark"

    @property
    def sort_key(self) -> str:
        """What the page's script compares; nothing for a number that is not there."""
        if isinstance(self.key, float | int):
            return f"{self.key:.9g}" if math.isfinite(self.key) else ""
        return self.key if self.key is not None else ""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A column: what it is called, and whether it holds text, which stands to the left."""

    text: str
    is_text: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row. The first cell is its heading; `spans` has the last one take the rest of it."""

    cells: tuple[Cell, ...]
    kind: str = ""
    number: int | None = None
    spans: int = 1


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """A whole table with the sentence that says what is in it."""

    name: str
    caption: str
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    kind: str = ""
    is_sortable: bool = True


def number(text: str, key: float | None, *, under: str = "") -> Cell:
    """A cell that is sorted by a number; `key` None is not there, and goes last."""
    return Cell(text=text, under=under, key=math.nan if key is None else float(key))


def headings(*names: str, text: frozenset[int] | set[int] = frozenset({0})) -> tuple[Heading, ...]:
    """Columns by name; `text` are the indices of those that hold text."""
    return tuple(Heading(text=name, is_text=i in text) for i, name in enumerate(names))
