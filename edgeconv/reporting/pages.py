"""What the verbs return, as text for a terminal or a log, and as HTML for a notebook."""

from __future__ import annotations

import html
import io
import os
import re
import sys
import tempfile
import warnings
import webbrowser
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from edgeconv.reporting.tables import Cell, Column, Row, Table
from edgeconv.system.processes.escaping import harmless_line, plain

_HERE = "edgeconv.reporting"
# By name of the type: what makes its page is imported only where it is shown.
PAGES = {
    "Built": f"{_HERE}.inspected:built_page",
    "Check": f"{_HERE}.verdicts.terminal:check_page",
    "Checked": f"{_HERE}.verdicts.terminal:checked_page",
    "Conversion": f"{_HERE}.text:conversion_page",
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


def as_text(result: Any) -> str:
    """The result as text, as wide as the terminal."""
    return text_of(result, width=os.get_terminal_size(1).columns if os.isatty(1) else None)


def show(result: Any) -> None:
    """Show the page of a result: below the cell of a notebook, else in the browser."""
    kernel = sys.modules.get("IPython")
    shell = kernel.get_ipython() if kernel else None
    page = _page(result)
    if shell is not None and hasattr(shell, "kernel"):
        frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600"></iframe>'
        display: Any = import_module("IPython.display")
        display.display(display.HTML(f"<div>{frame}</div>"))
        return
    # It must be there for as long as the browser shows it.
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
        file.write(page)
    if not webbrowser.open(Path(file.name).as_uri()):
        warnings.warn(f"no browser opened: the page is {file.name}", stacklevel=3)


def _page(result: Any) -> str:
    """The whole page of a result: of a report the one that `bench` writes."""
    if type(result).__name__ == "Report":
        from edgeconv.reporting.html import render_html

        return render_html(result)
    return f"<!doctype html><meta charset=utf-8>{as_html(result)}"


def as_html(result: Any) -> str:
    """The result as a fragment of HTML."""
    return to_html(page_of(result))


_GAP = 2
_LEAST_WRAPPED = 14
_DETAIL_INDENT = 4
_MOST_IN_A_CELL, _MOST_IN_A_LINE = 400, 4000
_MAY_BREAK = re.compile(r"\s+|(?<=[^\W_])[-_/](?=\w)")


@dataclass(frozen=True)
class Labeled:
    """Labels and texts; the texts are aligned in a column if the width allows."""

    pairs: list[tuple[str, str]]


# A text is a line.
Block = str | Text | Table | Labeled
# From top to bottom.
Page = Sequence[Block]


def dim(line: str) -> Text:
    """A line that matters less."""
    return Text(line, style="dim")


def notes(lines: Iterable[str]) -> list[Text]:
    """Notes as a page ends with them."""
    return [dim(f"note: {plain(line)}") for line in lines]


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
    if isinstance(block, str | Text):
        return f"<div>{html.escape(str(block)) or '&nbsp;'}</div>"
    if isinstance(block, Labeled):
        pairs = (
            f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in block.pairs
        )
        return f"<table>{''.join(pairs)}</table>"
    heads = "".join(f"<th>{html.escape(column.heading)}</th>" for column in block.columns)
    rows = "".join(_html_row(row) for row in block.rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _html_row(row: Row) -> str:
    cells = "".join(f"<td>{html.escape(cell.text + cell.aside)}</td>" for cell in row.cells)
    details = "<br>".join(html.escape(str(detail)) for detail in row.details)
    wide = f'<tr><td colspan="{len(row.cells)}">{details}</td></tr>' if details else ""
    return f"<tr>{cells}</tr>{wide}"


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
    return text if text.plain.isprintable() else Text(plain(text.plain), style=text.style)


def _cell(cell: Cell) -> Text:
    return _cut(Text(cell.text, cell.style).append(cell.aside, "dim"), _MOST_IN_A_CELL)


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
        return [Text.assemble((f"{label}: ", "dim"), text) for label, text in pairs]
    lines = []
    for label, text in pairs:
        first, *rest = _wrap(Text(text), None if width is None else width - indent)
        lines.append(Text.assemble((set_cell_size(label, indent), "dim"), first))
        lines += [Text(" " * indent) + part for part in rest]
    return lines


def _draw(grid: list[list[list[Text]]], sides: list[bool], details: list[list[Text]]) -> list[Text]:
    widths = _widths(grid)
    drawn = _align(grid[0], widths, sides)
    drawn.append(Text("─" * _total(widths), style="dim"))
    for cells, below in zip(grid[1:], details, strict=True):
        drawn += _align(cells, widths, sides)
        drawn += _indent(below)
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
                lines.append(Text(f"  {heading}: ", style="dim") + cell)
        lines += _indent(below)
    return lines


def _indent(details: list[Text]) -> list[Text]:
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
