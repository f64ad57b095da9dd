"""Pages of lines and tables, as text of any width without loss, or as HTML for a notebook.

rich's table cuts or folds every column when it is too wide. Here a table that is too wide first
moves its secondary columns under their neighbors, then becomes a list of cards. Rows may have
details, which take the whole width.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from edgeconv.processes.escaping import harmless_line, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_GAP = 2
_LEAST_WRAPPED = 14
_DETAIL_INDENT = 4
_MOST_IN_A_CELL, _MOST_IN_A_LINE = 400, 4000
_MAY_BREAK = re.compile(r"\s+|(?<=[^\W_])[-_/](?=\w)")


@dataclass(frozen=True)
class GridColumn:
    """A heading. In a table that is too wide, columns with `beneath` move under the one before
    them, and the one that `wraps` is narrowed.
    """

    heading: str
    right: bool = True
    beneath: bool = False
    wraps: bool = False


@dataclass(frozen=True)
class Row:
    """One cell a column, and details below them. No text is markup."""

    cells: tuple[Text, ...]
    details: tuple[Text, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A table: headings, and rows with a cell for each."""

    columns: tuple[GridColumn, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Labeled:
    """Labels and texts, the texts aligned in a column where there is room."""

    pairs: list[tuple[str, str]]


# A `Text` is a line.
Block = Text | Grid | Labeled
# From top to bottom.
Page = Sequence[Block]


def to_text(page: Page, *, width: int | None, color: bool) -> str:
    """The page as lines wrapped at `width` cells (None: not wrapped).

    No text of the page can control a terminal or a CI system. ANSI codes are written only with
    `color`, and not if NO_COLOR is set.
    """
    # With NO_COLOR, rich would still write bold and dim.
    color = color and not os.environ.get("NO_COLOR")
    file = io.StringIO()
    console = Console(
        file=file,
        width=width or 1,
        force_terminal=color,
        force_jupyter=False,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    for line in _lines(page, width):
        for part in _wrap(line, width):
            part.rstrip()
            harmless = harmless_line(part.plain)
            if harmless != part.plain:
                part = Text(harmless, style=part.style)
            console.print(part, highlight=False, soft_wrap=True)
    return file.getvalue().rstrip("\n")


def to_html(page: Page) -> str:
    """The page as a fragment of HTML, in which all text is escaped."""
    return f"<div>{''.join(map(_html, page))}</div>"


def _html(block: Block) -> str:
    if isinstance(block, Text):
        return f"<div>{escape(block.plain) or '&nbsp;'}</div>"
    if isinstance(block, Labeled):
        pairs = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in block.pairs)
        return f"<table>{''.join(pairs)}</table>"
    heads = "".join(f"<th>{escape(column.heading)}</th>" for column in block.columns)
    rows = "".join(_html_row(row) for row in block.rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _html_row(row: Row) -> str:
    cells = "".join(f"<td>{escape(cell.plain)}</td>" for cell in row.cells)
    details = "<br>".join(escape(detail.plain) for detail in row.details)
    wide = f'<tr><td colspan="{len(row.cells)}">{details}</td></tr>' if details else ""
    return f"<tr>{cells}</tr>{wide}"


def _lines(page: Page, width: int | None) -> Iterator[Text]:
    for block in page:
        if isinstance(block, Grid):
            columns = tuple(
                replace(column, heading=_cut(Text(column.heading), _MOST_IN_A_CELL).plain)
                for column in block.columns
            )
            yield from table_lines(columns, [_cut_row(row) for row in block.rows], width)
        elif isinstance(block, Labeled):
            cut = [(label, _cut(Text(text), _MOST_IN_A_LINE).plain) for label, text in block.pairs]
            yield from _labelled_lines(cut, width)
        else:
            yield _cut(block, _MOST_IN_A_LINE)


def _cut_row(row: Row) -> Row:
    return Row(
        tuple(_cut(cell, _MOST_IN_A_CELL) for cell in row.cells),
        tuple(_cut(detail, _MOST_IN_A_LINE) for detail in row.details),
    )


def _cut(text: Text, most: int) -> Text:
    """The text, shortened and without control characters."""
    if len(text) > most:
        text = text[:most] + Text(f"… ({len(text) - most:,} more characters)")
    return text if text.plain.isprintable() else Text(plain(text.plain), style=text.style)


def table_lines(columns: tuple[GridColumn, ...], rows: list[Row], width: int | None) -> list[Text]:
    """The table in the first shape that fits: wide, folded, cards."""
    heading = Row(tuple(Text(column.heading, style="bold") for column in columns))
    grid = [[[cell] for cell in row.cells] for row in (heading, *rows)]
    shown = columns
    if width is not None and _total(_widths(grid)) > width:
        grid = [_fold(columns, line) for line in grid]
        shown = tuple(column for column in columns if not column.beneath)
        at = next(i for i, column in enumerate(shown) if column.wraps)
        room = width - _total(_widths(grid)) + _widths(grid)[at]
        if room < min(_LEAST_WRAPPED, _widths(grid)[at]):
            return _cards(columns, rows)
        for line in grid:
            line[at] = [part for cell in line[at] for part in _wrap(cell, room)]
    return _draw(grid, [column.right for column in shown], rows)


def _labelled_lines(pairs: list[tuple[str, str]], width: int | None) -> list[Text]:
    indent = max(cell_len(label) for label, _ in pairs) + _GAP
    if width is not None and width - indent < _LEAST_WRAPPED:
        return [Text.assemble((f"{label}: ", "dim"), text) for label, text in pairs]
    lines = []
    for label, text in pairs:
        first, *rest = _wrap(Text(text), None if width is None else width - indent)
        lines.append(Text.assemble((set_cell_size(label, indent), "dim"), first))
        lines += [Text(" " * indent) + part for part in rest]
    return lines


def _draw(grid: list[list[list[Text]]], sides: list[bool], rows: list[Row]) -> list[Text]:
    widths = _widths(grid)
    drawn = _align(grid[0], widths, sides)
    drawn.append(Text("─" * _total(widths), style="dim"))
    for cells, row in zip(grid[1:], rows, strict=True):
        drawn += _align(cells, widths, sides)
        drawn += _indent(row.details)
    return drawn


def _align(cells: list[list[Text]], widths: list[int], sides: list[bool]) -> list[Text]:
    lines = []
    for parts in zip_longest(*cells, fillvalue=Text()):
        padded = []
        for part, width, right in zip(parts, widths, sides, strict=True):
            space = Text(" " * (width - part.cell_len))
            padded.append(space + part if right else part + space)
        lines.append(Text(" " * _GAP).join(padded))
    return [line for line in lines if line.plain.strip()]


def _fold(columns: tuple[GridColumn, ...], line: list[list[Text]]) -> list[list[Text]]:
    folded: list[list[Text]] = []
    for column, cell in zip(columns, line, strict=True):
        if column.beneath:
            inset = [part if column.right or not part else Text("  ") + part for part in cell]
            folded[-1] = folded[-1] + inset
        else:
            folded.append(cell)
    return folded


def _cards(columns: tuple[GridColumn, ...], rows: list[Row]) -> list[Text]:
    lines = []
    for row in rows:
        lines.append(row.cells[0])
        for column, cell in zip(columns[1:], row.cells[1:], strict=True):
            if cell:
                lines.append(Text(f"  {column.heading}: ", style="dim") + cell)
        lines += _indent(row.details)
    return lines


def _indent(details: tuple[Text, ...]) -> list[Text]:
    return [Text(" " * _DETAIL_INDENT) + detail for detail in details]


def _widths(grid: list[list[list[Text]]]) -> list[int]:
    return [
        max(cell.cell_len for cells in column for cell in cells)
        for column in zip(*grid, strict=True)
    ]


def _total(widths: list[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _wrap(text: Text, width: int | None) -> list[Text]:
    """The text in lines of at most `width` cells, all indented as the first."""
    if width is None or text.cell_len <= width:
        return [text]
    indent = len(text.plain) - len(text.plain.lstrip())
    indent = indent if indent < width // 2 else 0
    body = text[indent:] if indent else text
    parts = body.divide(_breaks(body.plain, width - indent))
    for part in parts:
        part.rstrip()
    return [Text(" " * indent) + part for part in parts]


def _breaks(text: str, width: int) -> list[int]:
    """Where to break `text`: at blanks or separators, in a word only if it is too long."""
    breaks: list[int] = []
    start = last = 0
    for stop in [*(match.end() for match in _MAY_BREAK.finditer(text)), len(text)]:
        if last > start and cell_len(text[start:stop].rstrip()) > width:
            breaks.append(last)
            start = last
        while cell_len(text[start:stop].rstrip()) > width:
            start += max(1, len(chop_cells(text[start:stop], width)[0]))
            breaks.append(start)
        last = stop
    return breaks
