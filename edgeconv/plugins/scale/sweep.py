"""The verb `sweep`: models, recipes, runtimes and data as cells, of which only missing ones run.

Jobs run in turn: what ends without all its results is split, so that one cell alone fails. A device
has one job at a time. Jobs of one model share its float conversion by the cache: the first of them
runs before the others where there is something else to do.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.measure.machine import environment
from edgeconv.plugins.scale.sweep_jobs import Executor, Handle, Results, SweepJob, ThisMachine
from edgeconv.plugins.scale.sweep_plan import PlannedCell, SweepPlan, make_plan
from edgeconv.reporting.sweeps import JSON_NAME, NAMES, write_sweep
from edgeconv.statistics.comparison import pareto_front
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.store import owned, read_noun, refuse_inputs
from edgeconv.types import (
    EVERY_RECIPE,
    Budget,
    CellResult,
    Measurement,
    RecipeName,
    Report,
    SweepCell,
    Swept,
)
from edgeconv.types.errors import (
    InputRefused,
    OutputRefused,
    SandboxMissing,
    UsageError,
    WorkerCrashed,
)

if TYPE_CHECKING:
    from edgeconv.plugins.scale.sweep_on_ray import ClusterSite
    from edgeconv.requests.tune import SweepRequest


# What is wrong with this machine or the request, and so with every cell.
_OF_ALL = (OutputRefused, SandboxMissing)
_ORDER = {"failed": 0, "missing": 1, "done": 2}
_COMPETING = attrgetter("model", "data", "runtime")
_MISSING = "it has not run yet"
_RECIPES: dict[str, RecipeName] = {name: name for name in EVERY_RECIPE}


def sweep(request: SweepRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Swept:
    """Measure every cell that has no result yet, and write one report of all.

    A cell that fails does not end the sweep: it is in the result with its reason. Raises an
    `EdgeconvError` where the file is wrong, or nothing could run at all.
    """
    file = Path(request.file)
    directory = Path(request.directory or f"{file.absolute().stem}.sweep").absolute()
    with _site(request, on_progress) as site:
        plan = make_plan(request, directory, on_progress, site.processor)
        refuse_inputs(directory / name for name in NAMES)
        results = Results(directory)
        if request.status:
            return _summary(plan, results, file.stem)
        waiting = f"waiting for another sweep into {directory}"
        with owned(directory, on_wait=lambda: on_progress(waiting)):
            _run(request, plan, results, site, on_progress)
            whole = _summary(plan, results, file.stem)
            write_sweep(whole, directory)
            return whole


@contextlib.contextmanager
def _site(
    request: SweepRequest, on_progress: Callable[[str], None]
) -> Iterator[ThisMachine | ClusterSite]:
    """Where the jobs run. Raises `UsageError` for what is not a cluster."""
    if request.on is None:
        yield ThisMachine(request, on_progress)
        return
    from edgeconv.plugins.scale.sweep_on_ray import ClusterSite

    with contextlib.ExitStack() as stack:
        yield ClusterSite(request, stack, on_progress)


def _summary(plan: SweepPlan, results: Results, title: str) -> Swept:
    directory = results.directory
    return summarize(plan, results, _last(directory), title=title, directory=str(directory))


def _last(directory: Path) -> Swept | None:
    """The last sweep of the directory; None without one, or if another version wrote it."""
    with contextlib.suppress(InputRefused):
        return read_noun(directory / JSON_NAME, Swept, what="sweep")
    return None


def _refuse_to_start_anew(plan: SweepPlan, results: Results) -> None:
    if not any(results.read(cell.key) for cell in plan.cells):
        raise UsageError(
            f"--resume: {results.directory} has no result for any of the {len(plan.cells)} cells",
            hint="check -o, or remove --resume to run all of them; changed models or data, and "
            "other versions of edgeconv or its tools, make new cells",
        )


def _run(
    request: SweepRequest,
    plan: SweepPlan,
    results: Results,
    site: ThisMachine | ClusterSite,
    on_progress: Callable[[str], None],
) -> None:
    if request.resume:
        _refuse_to_start_anew(plan, results)
    known = {}
    for cell in plan.cells:
        result = results.read(cell.key)
        if result is not None and not (result.error and request.retry_failed):
            known[cell.key] = result
        elif result is not None:
            results.remove(cell.key)
    jobs = list(plan.missing(known))
    if not jobs:
        return
    total, counted = sum(len(job.cells) for job in jobs), {"done": 0, "failed": 0}

    def show(running: int, ended: Sequence[CellResult]) -> None:
        counted["failed"] += sum(bool(result.error) for result in ended)
        counted["done"] += len(ended)
        line = f"cells: {running} running, {counted['failed']} failed, {len(known)} kept; ended"
        on_progress(CountedLine(line, counted["done"], total))

    with site.executor(plan.file, jobs) as executor:
        run_jobs(jobs, executor, results, show)


def run_jobs(
    jobs: Iterable[SweepJob],
    executor: Executor,
    results: Results,
    on_change: Callable[[int, Sequence[CellResult]], None],
) -> None:
    """Run all jobs, until each of their cells has a result.

    `on_change` is called with the number of running cells, and the results that are new. Raises
    `OutputRefused` and `SandboxMissing`, which are not due to a cell; then every job is ended.
    """
    waiting = deque(jobs)
    running: list[Handle] = []
    new: list[CellResult] = []
    try:
        while waiting or running:
            while (job := _next(waiting, running, executor.width)) is not None:
                running.append(executor.submit(job))
            on_change(sum(len(handle.job.cells) for handle in running), new)
            executor.wait(running)
            new = []
            for ended in [handle for handle in running if handle.has_ended()]:
                running.remove(ended)
                waiting.extend(_unfinished(ended, results, new))
        on_change(0, new)
    finally:
        for handle in running:
            handle.close()


def _next(waiting: deque[SweepJob], running: Sequence[Handle], width: int) -> SweepJob | None:
    """The first job that can run now, which waits no longer; None where none can."""
    if len(running) >= width:
        return None
    jobs = [handle.job for handle in running]
    models = {job.measuring.baseline for job in jobs}
    able = (
        (job.measuring.baseline in models, index)
        for index, job in enumerate(waiting)
        if not (job.device and any(_hinders(each, job) for each in jobs))
    )
    _, index = min(able, default=(False, -1))
    if index < 0:
        return None
    job = waiting[index]
    del waiting[index]
    return job


def _hinders(running: SweepJob, job: SweepJob) -> bool:
    """Whether a job must end before one on a device: it has the device, or makes its files."""
    return running.device == job.device or running.files == job.files


def _unfinished(ended: Handle, results: Results, new: list[CellResult]) -> list[SweepJob]:
    """A job for each cell that has no result; a cell that was alone has failed now.

    All other results are added to `new`.
    """
    job, error = ended.job, ended.error()
    if isinstance(error, _OF_ALL):
        raise error
    cells = [cell for cell in job.cells if results.read(cell.key) is None]
    if cells and len(job.cells) == 1:
        results.fail(cells, error or WorkerCrashed(f"{job.name} ended without a result"))
        cells = []
    unknown = {cell.key for cell in cells}
    known = (results.read(cell.key) for cell in job.cells if cell.key not in unknown)
    new.extend(result for result in known if result)
    return [job.alone(cell) for cell in cells]


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
        cells=tuple(sorted(changed, key=_place)),
        reports=tuple(
            _report(list(group), by_key)
            for _, group in groupby(plan.cells, attrgetter("model", "data"))
        ),
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
        return replace(
            blank, state="failed", error=result.error, reason=result.reason, hint=result.hint
        )
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


def _place(cell: SweepCell) -> tuple[object, ...]:
    """By model, data and runtime: what failed, then the largest loss, then the smallest SNR."""
    drop, snr_db = cell.drop, cell.snr_db
    return (
        *_COMPETING(cell),
        _ORDER[cell.state],
        math.inf if drop is None else -drop,
        math.inf if snr_db is None else snr_db,
        cell.name,
    )


def _groups(cells: Iterable[SweepCell]) -> Iterator[list[SweepCell]]:
    """The cells that compete: they share a model, a data set and a runtime.

    What other kernels run is of no use where a file is to ship on these.
    """
    by_place = groupby(sorted(cells, key=_COMPETING), _COMPETING)
    yield from (list(group) for _, group in by_place)


def _front(cells: Sequence[SweepCell]) -> list[SweepCell]:
    """The cells that no other one betters in cost and loss."""
    points = [(cell, *point) for cell in cells if (point := _point(cell)) is not None]
    best = pareto_front(points, lambda a, b: a[1] < b[1], lambda a, b: a[2] < b[2])
    return [cell for (cell, *_), is_best in zip(points, best, strict=True) if is_best]


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
