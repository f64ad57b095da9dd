"""A sweep as text, as a page whose columns sort and which a text filters, and as files."""

import csv
import io
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.reporting import units
from edgeconv.reporting.pages import Block, Page, dim
from edgeconv.reporting.spreadsheet import safe
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, Table, number, table
from edgeconv.system.store import html_with_checksum, json_with_checksum, publish_all
from edgeconv.system.store.notes import in_project
from edgeconv.types import SweepCell, Swept

NAMES = JSON_NAME, HTML_NAME, CSV_NAME = "sweep.json", "sweep.html", "sweep.csv"
_STYLES = {"failed": "red", "missing": "yellow"}
_MARKS = {"failed": "over", "missing": "warn"}
_CAPTION = (
    "Every cell, by model, worst first. A click on a heading sorts; “Pareto”: no other cell of the "
)
_CAPTION += "model, data set and runtime is smaller (or faster, with times) and loses less."
# The columns of sweep.csv, each with the field of a cell.
_FIELDS = {
    "model": "model",
    "recipe": "recipe",
    "runtime": "runtime",
    "data": "data",
    "state": "state",
    "reason": "reason",
    "size (bytes)": "size_bytes",
    "latency p50 (us)": "latency_us",
    "metric": "metric",
    "value of the metric": "value",
    "drop": "drop",
    "SNR (dB)": "snr_db",
    "on the Pareto front": "on_front",
    "change": "change",
    "file": "file",
    "sha256": "sha256",
    "key": "key",
}


def sweep_page(sweep: Swept) -> Page:
    """The counts, a line for each cell, by model and worst first, and what the last sweep had."""
    blocks: list[Block] = [counts(sweep), ""]
    if sweep.cells:
        columns = (*_names(""), *_MEASURED, Column("", _outcome, is_text=True))
        following = dict(pairwise(sweep.cells))
        blocks.append(table(columns, sweep.cells, lambda cell: _why(cell, following.get(cell))))
    return [*blocks, *map(dim, _notes(sweep))]


def counts(sweep: Swept) -> str:
    """How many cells are done, failed and missing."""
    numbers = f"{sweep.count('done')} done, {sweep.count('failed')} failed"
    missing = sweep.count("missing")
    return f"{units.plain(sweep.title)}: {units.counted(len(sweep.cells), 'cell')}, {numbers}" + (
        f", {missing} missing" if missing else ""
    )


def _names(absent: str) -> tuple[Column[SweepCell], ...]:
    """What identifies a cell; `absent` stands for data that it has not."""

    def column(heading: str, of: Callable[[SweepCell], str], **shape: bool) -> Column[SweepCell]:
        def cell(each: SweepCell) -> Cell:
            return Cell(units.plain(of(each)), key=of(each))

        return Column(heading, cell, is_text=True, **shape)

    return (
        column("model", lambda cell: cell.model, wraps=True),
        column("data", lambda cell: cell.data or absent, beneath=True),
        column("recipe", lambda cell: cell.recipe),
        column("runtime", lambda cell: cell.runtime, beneath=True),
    )


def _value(cell: SweepCell) -> Cell:
    text = units.value_of(cell.metric, cell.value) if cell.metric else units.ABSENT
    return number(text, cell.value)


def _drop(cell: SweepCell) -> Cell:
    text = units.drop_value(cell.drop, cell.metric) if cell.metric else units.ABSENT
    return number(text, cell.drop)


_MEASURED: tuple[Column[SweepCell], ...] = (
    Column("size", lambda cell: number(units.size(cell.size_bytes), cell.size_bytes)),
    Column(
        "p50", lambda cell: number(units.duration(cell.latency_us), cell.latency_us), beneath=True
    ),
    Column("value", _value),
    Column("drop", _drop, beneath=True),
    Column("SNR", lambda cell: number(units.decibels(cell.snr_db), cell.snr_db), beneath=True),
)


def _outcome(cell: SweepCell) -> Cell:
    """The state of a cell, or that it is on the front, and what changed."""
    state = "Pareto" if cell.on_front else cell.state.replace("done", "")
    text = ", ".join(filter(None, (state, units.plain(cell.change))))
    return Cell(text, style=_STYLES.get(cell.state, "green"))


def _why(cell: SweepCell, after: SweepCell | None) -> Iterator[Text]:
    """The reason of several cells in a row is below the last of them."""
    if after is not None and (after.model, after.reason) == (cell.model, cell.reason):
        return
    if cell.reason:
        yield dim(units.plain(cell.reason))
    if cell.hint:
        yield dim(f"next: {units.plain(cell.hint)}")


def _notes(sweep: Swept) -> Iterator[str]:
    for name in sweep.removed:
        yield f"no longer in the sweep: {units.plain(name)}"
    if any(cell.on_front for cell in sweep.cells):
        cost = "time" if any(cell.latency_us for cell in sweep.cells) else "size"
        same = "no other cell of the model, data set and runtime"
        yield f"Pareto: {same} has less {cost} and less loss."


def render_sweep(sweep: Swept) -> str:
    """The whole page, without network. No text of a sweep becomes markup, script or style in it."""
    from edgeconv.reporting.html import page_environment, page_script

    return (
        page_environment()
        .get_template("sweep.html.j2")
        .render(
            title=sweep.title,
            counts=counts(sweep),
            removed=sweep.removed,
            cells=_sortable(sweep),
            **page_script("script.js.j2", "filter.js.j2"),
        )
    )


def _sortable(sweep: Swept) -> Table:
    columns = (
        *_names(units.ABSENT),
        Column("state", _state, is_text=True),
        *_MEASURED,
        Column("reason or change", _remark, is_text=True),
    )
    return table(columns, sweep.cells, name="cells", caption=_CAPTION).for_page


def _state(cell: SweepCell) -> Cell:
    state = "Pareto" if cell.on_front else cell.state
    mark = "ok" if cell.on_front else _MARKS.get(cell.state)
    return Cell(state, key=state, kind=f"mark {mark}" if mark else "")


def _remark(cell: SweepCell) -> Cell:
    remark = cell.reason or cell.change or units.ABSENT
    return Cell(remark, under=f"next: {cell.hint}" if cell.hint else "", key=remark)


def write_sweep(sweep: Swept, directory: Path) -> None:
    """Write all files into `directory`, or none. Raises `OutputRefused`.

    The same results give the same bytes: where they are is not in them.
    """
    plain = in_project(msgspec.structs.replace(sweep, directory=""), directory)
    publish_all(
        {
            directory / CSV_NAME: sweep_csv(plain).encode(),
            directory / HTML_NAME: html_with_checksum(render_sweep(plain)),
            directory / JSON_NAME: json_with_checksum(plain, indent=1),
        }
    )


def sweep_csv(sweep: Swept) -> str:
    """One line for each cell, in the order of the page; numbers that are missing are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_FIELDS)
    for cell in sweep.cells:
        writer.writerow([_written(getattr(cell, field)) for field in _FIELDS.values()])
    return file.getvalue()


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return safe(value) if isinstance(value, str) else "" if value is None else repr(value)
