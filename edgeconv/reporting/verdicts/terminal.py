"""The checks as text for a terminal or the log of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.limits import word_of_verdict
from edgeconv.reporting.verdicts.grids import class_grid, stage_grid
from edgeconv.reporting.verdicts.words import (
    closing,
    headline,
    judging_line,
    remarks,
    worst_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.reporting.layout import Block
    from edgeconv.reporting.verdicts.grids import Grid
    from edgeconv.types import Check, Checked

_MOST_CLASSES = 10


def render_text(checked: Checked, *, width: int | None = None, color: bool = False) -> str:
    """A table of all limits for each model, what moved and dropped, and a last line for all."""
    from rich.text import Text

    from edgeconv.reporting.findings import word
    from edgeconv.reporting.layout import to_text

    page = [block for check in checked.checks for block in (*check_page(check), Text())]
    page.append(Text.assemble(word("PASS" if checked.ok else "FAIL"), " ", closing(checked)))
    return to_text(page, width=width, color=color) + "\n"


def check_page(check: Check) -> Iterator[Block]:
    """The limits of one model, and what moved and dropped."""
    from rich.text import Text

    from edgeconv.reporting.findings import finding_grids, word

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
    yield from (Text(line, style="dim") for line in (*remarks(check), judging_line(check)))


def _grid_blocks(grid: Grid) -> Iterator[Block]:
    from rich.text import Text

    from edgeconv.reporting import layout

    # The model's name is long, and no other column can be made narrower.
    wraps = grid.headings.index("model")
    columns = tuple(
        layout.Column(heading, right=i >= grid.texts, wraps=i == wraps)
        for i, heading in enumerate(grid.headings)
    )
    yield Text(f"{grid.title}:", style="bold")
    yield layout.Grid(columns, [layout.Row(tuple(map(Text, row))) for row in grid.rows])
    if grid.left_out:
        yield Text(f"and {grid.left_out} more", style="dim")
