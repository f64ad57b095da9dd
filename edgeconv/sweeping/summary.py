"""All results of a sweep as one value: worst cells first, fronts, what changed, reports."""

from __future__ import annotations

import math
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.measure.machine import environment
from edgeconv.types import EVERY_RECIPE, Measurement, Report, SweepCell, Swept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edgeconv.sweeping.plan import PlannedCell, SweepPlan
    from edgeconv.sweeping.results import Results
    from edgeconv.types import Budget, CellResult, RecipeName

_ORDER = {"failed": 0, "missing": 1, "done": 2}
_MISSING = "it has not run yet"
_RECIPES: dict[str, RecipeName] = {name: name for name in EVERY_RECIPE}


def summarize(
    plan: SweepPlan, results: Results, last: Swept | None, *, title: str, directory: str
) -> Swept:
    """The sweep as it is now, compared with the `last` one.

    It depends only on the file and the results, and not on the order in which they came.
    """
    by_key = {cell.key: results.read(cell.key) for cell in plan.cells}
    cells = [_cell(cell, by_key[cell.key]) for cell in plan.cells]
    fronts = {cell.key for group in _groups(cells) for cell in _front(group)}
    cells = [replace(cell, on_front=cell.key in fronts) for cell in cells]
    changed, removed = _changed(cells, last)
    return Swept(
        title=title,
        cells=tuple(sorted(changed, key=_badness)),
        reports=tuple(_report(list(group), by_key) for group in _planned_groups(plan.cells)),
        removed=removed,
        budget=plan.file.budget,
        budgets=_own_budgets(plan),
        gate=plan.file.gate,
        directory=directory,
    )


def _own_budgets(plan: SweepPlan) -> dict[str, Budget]:
    """The limits of models that have their own, by the titles of their reports."""
    file = plan.file
    every = {_title(cell): file.budget_of(cell.model) for cell in plan.cells}
    return {title: budget for title, budget in every.items() if budget != file.budget}


def _title(cell: PlannedCell) -> str:
    return " on ".join(filter(None, (cell.model, cell.data)))


def _cell(planned: PlannedCell, result: CellResult | None) -> SweepCell:
    blank = SweepCell(**planned._asdict(), state="missing")
    if result is None:
        return blank
    if result.report is None:
        return replace(blank, state="failed", reason=result.reason, hint=result.hint)
    (row,) = result.report.measurements
    return replace(
        blank,
        state="done",
        file=result.file,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        latency_us=row.latency.p50_us if row.latency else None,
        metric=row.accuracy.metric if row.accuracy else "",
        value=row.accuracy.value if row.accuracy else None,
        drop=row.accuracy_drop,
        drop_interval=row.accuracy_drop_interval,
        snr_db=min((each.snr_db for each in row.agreement), default=None),
    )


def _badness(cell: SweepCell) -> tuple[object, ...]:
    """What cells are sorted by: what failed, then the largest loss, then the smallest SNR."""
    drop, snr_db = cell.drop, cell.snr_db
    return (
        _ORDER[cell.state],
        math.inf if drop is None else -drop,
        math.inf if snr_db is None else snr_db,
        cell.name,
    )


def _groups(cells: Iterable[SweepCell]) -> Iterator[list[SweepCell]]:
    """The cells that compete: those of a model, a data set and a runtime.

    What other kernels run is of no use where a file is to ship on these.
    """
    key = attrgetter("model", "data", "runtime")
    yield from (list(group) for _, group in groupby(sorted(cells, key=key), key))


def _front(cells: Sequence[SweepCell]) -> list[SweepCell]:
    """The cells that no other one betters in cost and loss."""
    points = [(cell, *point) for cell in cells if (point := _point(cell)) is not None]
    return [
        cell
        for cell, cost, loss in points
        if not any(a <= cost and b <= loss and (a, b) != (cost, loss) for _, a, b in points)
    ]


def _point(cell: SweepCell) -> tuple[float, float] | None:
    """Cost (microseconds where there are times, else bytes) and loss, None where not known."""
    cost = cell.size_bytes if cell.latency_us is None else cell.latency_us
    loss = cell.drop if cell.snr_db is None or cell.drop is not None else -cell.snr_db
    return None if cost is None or loss is None else (cost, loss)


def _changed(
    cells: Iterable[SweepCell], last: Swept | None
) -> tuple[list[SweepCell], tuple[str, ...]]:
    """The cells with what changed, and the names of those that are gone.

    Where nothing did, the changes are those that the last sweep had.
    """
    cells = list(cells)
    if last is None:
        return cells, ()
    before = {cell.name: cell for cell in last.cells}
    names = {cell.name for cell in cells}
    removed = tuple(" ".join(filter(None, name)) for name in sorted(before.keys() - names))
    changes = {cell.name: _change(before.get(cell.name), cell) for cell in cells}
    if not (removed or any(changes.values())):
        return [replace(cell, change=before[cell.name].change) for cell in cells], last.removed
    return [replace(cell, change=changes[cell.name]) for cell in cells], removed


def _change(before: SweepCell | None, now: SweepCell) -> str:
    if before is None:
        return "new"
    if before.state != now.state:
        return f"{before.state} → {now.state}"
    parts = [
        f"{name} {was:.6g} → {is_now:.6g}"
        for name, was, is_now in (
            (now.metric, before.value, now.value),
            ("bytes", before.size_bytes, now.size_bytes),
        )
        if was is not None and is_now is not None and was != is_now
    ]
    if not parts and before.reason != now.reason:
        return "another reason"
    return ", ".join(parts) or ("another file" if before.sha256 != now.sha256 else "")


def _planned_groups(cells: Iterable[PlannedCell]) -> Iterator[Iterator[PlannedCell]]:
    yield from (group for _, group in groupby(cells, attrgetter("model", "data")))


def _report(cells: Sequence[PlannedCell], by_key: Mapping[str, CellResult | None]) -> Report:
    """The measurements of a model on a data set as one report, as `bench` makes them."""
    results = [by_key[cell.key] for cell in cells]
    reports = [result.report for result in results if result and result.report]
    rows = tuple(_row(cell, by_key[cell.key]) for cell in cells)
    title = _title(cells[0])
    if not reports:
        return Report(
            title=title, environment=environment(), data=None, baseline=None, measurements=rows
        )
    artifacts = {artifact.sha256: artifact for each in reports for artifact in each.artifacts}
    return replace(
        reports[0],
        title=title,
        measurements=rows,
        artifacts=tuple(
            replace(each, name=cells[0].model, source_path=cells[0].model)
            for each in artifacts.values()
        ),
        # In one order, whichever cells were measured together.
        notes=tuple(sorted({note for each in reports for note in each.notes})),
    )


def _row(cell: PlannedCell, result: CellResult | None) -> Measurement:
    if result is not None and result.report is not None:
        return result.report.measurements[0]
    return Measurement(
        name=f"{cell.recipe} {cell.runtime}",
        role="artifact",
        runtime="",
        recipe=_RECIPES.get(cell.recipe),
        measured_in=cell.runtime,
        sha256="",
        size_bytes=0,
        error=result.reason if result else _MISSING,
    )
