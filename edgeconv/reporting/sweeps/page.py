"""The page of `sweep`: a line for each cell, worst first, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Grid, GridColumn, Page, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import SweepCell, Swept

_COLUMNS = (
    GridColumn("model", right=False, wraps=True),
    GridColumn("data", right=False, beneath=True),
    GridColumn("recipe", right=False),
    GridColumn("runtime", right=False, beneath=True),
    GridColumn("size"),
    GridColumn("p50", beneath=True),
    GridColumn("value"),
    GridColumn("drop", beneath=True),
    GridColumn("SNR", beneath=True),
    GridColumn("", right=False),
)
_STYLES = {"failed": "red", "missing": "yellow"}


def sweep_page(sweep: Swept) -> Page:
    """The counts, the table, and what the last sweep had."""
    blocks: list[Text | Grid] = [Text(counts(sweep)), Text()]
    if sweep.cells:
        following = (*sweep.cells[1:], None)
        pairs = zip(sweep.cells, following, strict=True)
        blocks.append(Grid(_COLUMNS, [_row(cell, after) for cell, after in pairs]))
    return [*blocks, *(Text(line, style="dim") for line in _notes(sweep))]


def counts(sweep: Swept) -> str:
    """How many cells are done, failed and missing."""
    numbers = f"{sweep.count('done')} done, {sweep.count('failed')} failed"
    missing = sweep.count("missing")
    return f"{units.plain(sweep.title)}: {units.counted(len(sweep.cells), 'cell')}, {numbers}" + (
        f", {missing} missing" if missing else ""
    )


def measured(cell: SweepCell) -> tuple[str, str, str, str, str]:
    """Size, latency, value, drop and SNR as text."""
    value = drop = units.ABSENT
    if cell.metric:
        drop = units.drop_value(cell.drop, cell.metric)
        value = units.value_of(cell.metric, cell.value)
    size, p50 = units.size(cell.size_bytes), units.duration(cell.latency_us)
    return size, p50, value, drop, units.decibels(cell.snr_db)


def mark(cell: SweepCell) -> str:
    """The state of a cell, or that it is on the front, and what changed."""
    state = "Pareto" if cell.on_front else cell.state.replace("done", "")
    return ", ".join(filter(None, (state, units.plain(cell.change))))


def _row(cell: SweepCell, after: SweepCell | None) -> Row:
    """The line of a cell; the reason of several in a row is below the last of them."""
    names = (cell.model, cell.data, cell.recipe, cell.runtime)
    is_last = after is None or (after.model, after.reason) != (cell.model, cell.reason)
    details = [units.plain(cell.reason)] if cell.reason and is_last else []
    details += [f"next: {units.plain(cell.hint)}"] if cell.hint and is_last else []
    return Row(
        (
            *(Text(units.plain(name)) for name in names),
            *(Text(text) for text in measured(cell)),
            Text(mark(cell), style=_STYLES.get(cell.state, "green")),
        ),
        tuple(Text(line, style="dim") for line in details),
    )


def _notes(sweep: Swept) -> Iterator[str]:
    for name in sweep.removed:
        yield f"no longer in the sweep: {units.plain(name)}"
    if any(cell.on_front for cell in sweep.cells):
        cost = "time" if any(cell.latency_us for cell in sweep.cells) else "size"
        same = "no other cell of the model, data set and runtime"
        yield f"Pareto: {same} has less {cost} and less loss."
