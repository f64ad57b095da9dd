"""What the verbs return, as text for a terminal or a log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any, NamedTuple

from edgeconv.reporting.styled import Text, cell_len
from edgeconv.reporting.tables import Cell, Column, Table
from edgeconv.system.processes.escaping import harmless_line, plain

_HERE = "edgeconv.reporting"
# By name of the type: what makes its page is imported only where it is shown.
PAGES = {
    "Built": f"{_HERE}.inspected:built_page",
    "Check": f"{_HERE}.verdicts.terminal:check_page",
    "Checked": f"{_HERE}.verdicts.terminal:checked_page",
    "Conversion": f"{_HERE}.converted:conversion_page",
    "Debugged": f"{_HERE}.trials:debugged_page",
    "Diagnosis": f"{_HERE}.trials:diagnosis_page",
    "Difference": f"{_HERE}.changes:difference_page",
    "Embedded": f"{_HERE}.inspected:embedded_page",
    "Evidence": f"{_HERE}.inspected:evidence_page",
    "Inspection": f"{_HERE}.inspected:inspection_page",
    "Report": f"{_HERE}.text:report_page",
    "Scan": f"{_HERE}.inspected:scan_page",
    "Swept": f"{_HERE}.sweeps:sweep_page",
    "TrainingRecord": f"{_HERE}.text:training_page",
    "Tuning": f"{_HERE}.trials:tuning_page",
    "Verdict": f"{_HERE}.text:verdict_page",
}


def page_of(result: Any, **options: Any) -> Page:
    """The page of a result; `options` are those of its function."""
    module, _, function = PAGES[type(result).__name__].partition(":")
    return tuple(getattr(import_module(module), function)(result, **options))


def text_of(result: Any, *, width: int | None = None, color: bool = False, **options: Any) -> str:
    """The page of a result as text, at most `width` cells wide; see `to_text`."""
    return to_text(page_of(result, **options), width=width, color=color)


_GAP = 2
_LEAST_WRAPPED = 14
_DETAIL_INDENT = 4
_MOST_IN_A_CELL, _MOST_IN_A_LINE = 400, 4000
_MAY_BREAK = r"\s+|(?<=[^\W_])[-_/](?=\w)"


class Labeled(NamedTuple):
    """Labels and texts; the texts are aligned in a column if the width allows."""

    pairs: list[tuple[str, str]]


# A text is a line.
Block = str | Text | Table | Labeled
# From top to bottom.
Page = Sequence[Block]


def dim(line: str) -> Text:
    """A line that matters less."""
    return Text(line, "dim")


def notes(lines: Iterable[str]) -> list[Text]:
    """Notes as a page ends with them."""
    return [dim(f"note: {plain(line)}") for line in lines]


def to_text(page: Page, *, width: int | None, color: bool) -> str:
    """The page as lines wrapped at `width` cells (None: not wrapped).

    No text of the page can control a terminal or a CI system. ANSI codes are written only with
    `color`, and not if NO_COLOR is set.
    """
    color = color and not os.environ.get("NO_COLOR")
    lines = []
    for line in _lines(page, width):
        for part in _wrap(line, width):
            part = _stripped(part)
            harmless = harmless_line(part.plain)
            if harmless != part.plain:
                part = Text(harmless, part.style)
            lines.append(part.ansi if color else part.plain)
    return "\n".join(lines).rstrip("\n")


def _lines(page: Page, width: int | None) -> Iterator[Text]:
    for block in page:
        if isinstance(block, Table):
            yield from table_lines(block, width)
        elif isinstance(block, Labeled):
            cut = [(label, _cut(text, _MOST_IN_A_LINE).plain) for label, text in block.pairs]
            yield from _labelled_lines(cut, width)
        else:
            yield _cut(block, _MOST_IN_A_LINE)


def _cut(line: str | Text, most: int) -> Text:
    """The text, shortened and without control characters."""
    text = Text(line) if isinstance(line, str) else line
    if len(text) > most:
        text = text[:most] + Text(f"… ({len(text) - most:,} more characters)")
    return text if text.plain.isprintable() else Text(plain(text.plain), text.style)


def _cell(cell: Cell) -> Text:
    return _cut(Text(cell.text, cell.style) + Text(cell.aside, "dim"), _MOST_IN_A_CELL)


def table_lines(table: Table, width: int | None) -> list[Text]:
    """The table in the first shape that fits: wide, folded, cards."""
    columns = table.columns
    heading = [_cut(Text(column.heading, "bold"), _MOST_IN_A_CELL) for column in columns]
    grid = [[[cell] for cell in heading]]
    grid += [[[_cell(cell)] for cell in row.cells] for row in table.rows]
    details = [[_cut(line, _MOST_IN_A_LINE) for line in row.details] for row in table.rows]
    shown = columns
    if width is not None and _total(_widths(grid)) > width:
        whole = grid
        grid = [_fold(columns, line) for line in grid]
        shown = tuple(column for column in columns if not column.beneath)
        at = next(i for i, column in enumerate(shown) if column.wraps)
        room = width - _total(_widths(grid)) + _widths(grid)[at]
        if room < min(_LEAST_WRAPPED, _widths(grid)[at]):
            return _cards(whole, details)
        for line in grid:
            line[at] = [part for cell in line[at] for part in _wrap(cell, room)]
    return _draw(grid, [not column.is_text for column in shown], details)


def _labelled_lines(pairs: list[tuple[str, str]], width: int | None) -> list[Text]:
    indent = max(cell_len(label) for label, _ in pairs) + _GAP
    if width is not None and width - indent < _LEAST_WRAPPED:
        return [Text().join((dim(f"{label}: "), text)) for label, text in pairs]
    lines = []
    for label, text in pairs:
        first, *rest = _wrap(Text(text), None if width is None else width - indent)
        lines.append(Text().join((dim(label + " " * (indent - cell_len(label))), first)))
        lines += [Text(" " * indent) + part for part in rest]
    return lines


def _draw(grid: list[list[list[Text]]], sides: list[bool], details: list[list[Text]]) -> list[Text]:
    widths = _widths(grid)
    drawn = _align(grid[0], widths, sides)
    drawn.append(dim("─" * _total(widths)))
    for cells, below in zip(grid[1:], details, strict=True):
        drawn += _align(cells, widths, sides)
        drawn += _indent(below)
    return drawn


def _align(cells: list[list[Text]], widths: list[int], sides: list[bool]) -> list[Text]:
    lines = []
    for parts in zip_longest(*cells, fillvalue=Text()):
        padded = []
        for part, width, right in zip(parts, widths, sides, strict=True):
            space = Text(" " * (width - cell_len(part.plain)))
            padded.append(space + part if right else part + space)
        lines.append(Text(" " * _GAP).join(padded))
    return [line for line in lines if line.plain.strip()]


def _fold(columns: tuple[Column[Any], ...], line: list[list[Text]]) -> list[list[Text]]:
    folded: list[list[Text]] = []
    for column, cell in zip(columns, line, strict=True):
        if column.beneath:
            inset = [part if not (column.is_text and part) else Text("  ") + part for part in cell]
            folded[-1] = folded[-1] + inset
        else:
            folded.append(cell)
    return folded


def _cards(grid: list[list[list[Text]]], details: list[list[Text]]) -> list[Text]:
    lines = []
    headings = [cell for (cell,) in grid[0]]
    for (name, *others), below in zip(grid[1:], details, strict=True):
        lines += name
        for heading, (cell,) in zip(headings[1:], others, strict=True):
            if cell:
                lines.append(dim(f"  {heading}: ") + cell)
        lines += _indent(below)
    return lines


def _indent(details: list[Text]) -> list[Text]:
    return [Text(" " * _DETAIL_INDENT) + detail for detail in details]


def _widths(grid: list[list[list[Text]]]) -> list[int]:
    return [
        max(cell_len(cell.plain) for cells in column for cell in cells)
        for column in zip(*grid, strict=True)
    ]


def _total(widths: list[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _wrap(text: Text, width: int | None) -> list[Text]:
    """The text in lines of at most `width` cells, all indented as the first."""
    if width is None or cell_len(text.plain) <= width:
        return [text]
    indent = len(text.plain) - len(text.plain.lstrip())
    indent = indent if indent < width // 2 else 0
    body = text[indent:] if indent else text
    parts = map(_stripped, body.divide(_breaks(body.plain, width - indent)))
    return [Text(" " * indent) + part for part in parts]


def _stripped(text: Text) -> Text:
    return text[: len(text.plain.rstrip())]


def _breaks(text: str, width: int) -> list[int]:
    """Where to break `text`: at blanks or separators, in a word only if it is too long."""
    from rich.cells import chop_cells

    breaks: list[int] = []
    start = last = 0
    for stop in [*(match.end() for match in re.finditer(_MAY_BREAK, text)), len(text)]:
        if last > start and cell_len(text[start:stop].rstrip()) > width:
            breaks.append(last)
            start = last
        while cell_len(text[start:stop].rstrip()) > width:
            start += max(1, len(chop_cells(text[start:stop], width)[0]))
            breaks.append(start)
        last = stop
    return breaks
