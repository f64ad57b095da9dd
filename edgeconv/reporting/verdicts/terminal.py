"""Checks as text for a terminal or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Grid, GridColumn, Row, to_text
from edgeconv.reporting.limits import (
    VerdictWord,
    Word,
    explanation,
    in_words,
    name_of,
    word_of,
    word_of_verdict,
)
from edgeconv.reporting.verdicts.grids import class_grid, stage_grid
from edgeconv.reporting.verdicts.words import (
    closing,
    headline,
    remarks,
    statistics_line,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.reporting.layout import Block
    from edgeconv.reporting.verdicts import grids
    from edgeconv.types import Check, Checked, Finding

_MOST_CLASSES = 10
_STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    **dict.fromkeys(("WARN", "–", "?", "NOT MEASURED", "INCONCLUSIVE"), "yellow"),
}
_COLUMNS = (
    GridColumn("", right=False),
    GridColumn("model", right=False, wraps=True),
    GridColumn("limit", right=False),
    GridColumn("allowed"),
    GridColumn("actual"),
)


def render_text(checked: Checked, *, width: int | None = None, color: bool = False) -> str:
    """The page of each check, and a last line for all."""
    page = [block for check in checked.checks for block in (*check_page(check), Text())]
    page.append(Text.assemble(word("PASS" if checked.ok else "FAIL"), " ", closing(checked)))
    return to_text(page, width=width, color=color) + "\n"


def check_page(check: Check) -> Iterator[Block]:
    """The limits of one model, its stages, and the classes that dropped."""
    which = word_of_verdict(check.verdict)
    yield Text.assemble(word(which), " ", Text(headline(check), style="bold"))
    if check.summary:
        yield Text(units.plain(check.summary))
    yield Text()
    yield from finding_grids(worst_first(check))
    for grid in (stage_grid(check), class_grid(check, _MOST_CLASSES)):
        if grid:
            yield Text()
            yield from _grid_blocks(grid)
    yield Text()
    yield from (Text(line, style="dim") for line in (*remarks(check), statistics_line(check)))


def _grid_blocks(grid: grids.VerdictTable) -> Iterator[Block]:
    # Only the names of models are long.
    wraps = grid.headings.index("model")
    columns = tuple(
        GridColumn(heading, right=i >= grid.texts, wraps=i == wraps)
        for i, heading in enumerate(grid.headings)
    )
    yield Text(f"{grid.title}:", style="bold")
    yield Grid(columns, [Row(tuple(map(Text, row))) for row in grid.rows])
    if grid.left_out:
        yield Text(f"and {grid.left_out} more", style="dim")


def word(which: Word | VerdictWord) -> Text:
    """The word in its color."""
    return Text(which, style=_STYLES[which])


def finding_grids(findings: Sequence[Finding], *, below_table: bool = False) -> list[Grid]:
    """One row a finding with its explanation below; no table without findings."""
    rows = [_row(finding, below_table) for finding in findings]
    return [Grid(_COLUMNS, rows)] if rows else []


def _row(finding: Finding, below_table: bool) -> Row:
    allowed, actual = in_words(finding)
    cells = (units.plain(finding.model), name_of(finding), allowed, actual)
    reason = "; ".join(explanation(finding, below_table=below_table))
    details = (Text(reason, style="dim"),) if reason else ()
    return Row((word(word_of(finding)), *map(Text, cells)), details)
