"""The noun of every table: columns that know their cells, for terminals and pages; and Markdown.

Markdown is for GitHub and GitLab, with foreign text escaped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from edgeconv.reporting import units
from edgeconv.reporting.styled import Text

Of = TypeVar("Of")
Key = float | str | None


class Cell(msgspec.Struct, frozen=True):
    """A cell: its text, a smaller line under it, and its sort key, None for the text.

    `lead` is a warning before the text, and `aside` a remark after it. `share`, 0 to 1, is drawn
    as a bar under it. `kind` is a class of the page's style sheet, `style` one of the terminal's.
    """

    text: str
    under: str = ""
    lead: str = ""
    aside: str = ""
    key: Key = None
    kind: str = ""
    style: str = ""
    share: float | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it is not sorted by its text."""
        return self.key is not None or self.text == units.ABSENT or self.kind == "remark"

    @property
    def sort_key(self) -> str:
        """What the page's script compares; "" for a missing number."""
        if isinstance(self.key, float | int):
            return f"{self.key:.9g}" if math.isfinite(self.key) else ""
        return self.key if self.key is not None else ""


def number(text: str, key: float | None, *, under: str = "") -> Cell:
    """A cell that is sorted by a number; None goes last."""
    return Cell(text, under=under, key=math.nan if key is None else float(key))


class Column(msgspec.Struct, Generic[Of], frozen=True):
    """A heading, and the cell of each item; text is aligned left, numbers right.

    In a terminal where the table is too wide, columns with `beneath` move under the one before
    them, and the one that `wraps` is narrowed.
    """

    heading: str
    cell: Callable[[Of], Cell | str]
    is_text: bool = False
    beneath: bool = False
    wraps: bool = False


class Row(msgspec.Struct, frozen=True):
    """One cell a column, the last one over `spans` columns, and details below them."""

    cells: tuple[Cell, ...]
    details: tuple[str | Text, ...] = ()
    kind: str = ""
    number: int | None = None
    spans: int = 1


class Table(msgspec.Struct, frozen=True):
    """A whole table; on a page it has a name and a caption. The first cell of a row heads it.

    `left_out` rows more are not shown.
    """

    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    name: str = ""
    caption: str = ""
    kind: str = ""
    is_sortable: bool = True
    left_out: int = 0

    @property
    def for_page(self) -> Table:
        """With headings that begin with a capital letter."""
        return replace(
            self,
            columns=tuple(replace(each, heading=capital(each.heading)) for each in self.columns),
        )


def table(
    columns: Iterable[Column[Of]],
    items: Iterable[Of],
    details: Callable[[Of], Iterable[str | Text]] = lambda _: (),
    **page: Any,
) -> Table:
    """One row an item; `page` are further fields of the table."""
    shown = tuple(columns)
    rows = (Row(cells_of(shown, item), tuple(details(item))) for item in items)
    return Table(shown, tuple(rows), **page)


def cells_of(columns: Iterable[Column[Of]], item: Of) -> tuple[Cell, ...]:
    """The cells of an item."""
    cells = (column.cell(item) for column in columns)
    return tuple(Cell(cell) if isinstance(cell, str) else cell for cell in cells)


def capital(heading: str) -> str:
    """With a capital letter first, except for percentiles such as p50."""
    return heading if heading[1:2].isdigit() else heading[:1].upper() + heading[1:]


# What starts markup in GitHub's Markdown, and what GitHub turns into links: addresses, mentions of
# people and numbers of issues.
_MARKUP = r"([\\`*_{}\[\]()+!|~$]|:(?=//))"
_LINKED = r"([@#]|www(?=\.))"


def escape(text: str) -> str:
    """Foreign text without markup, also for cells of tables."""
    harmless = units.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(_LINKED, r"\1<!-- -->", re.sub(_MARKUP, r"\\\1", harmless))


def markdown_lines(table: Table, shown: Callable[[str], str] = escape) -> Iterator[str]:
    """The table, whose texts are written by `shown`."""
    yield _row(shown(column.heading) for column in table.columns)
    yield _row("---" if column.is_text else "--:" for column in table.columns)
    yield from (_row(shown(cell.text) for cell in row.cells) for row in table.rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fold(heading: str, lines: Sequence[str]) -> Iterator[str]:
    """The lines in a section that a click on its heading opens; nothing without lines."""
    if lines:
        yield ""
        yield f"<details><summary>{heading}</summary>"
        yield ""
        yield from lines
        yield ""
        yield "</details>"
