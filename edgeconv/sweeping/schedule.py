"""Jobs in turn: what ends without all its results is split, so that one cell alone fails.

A device has one job at a time. Jobs of one model share its float conversion by the cache: the first
of them runs before the others where there is something else to do.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from edgeconv.errors import OutputRefused, SandboxMissing, WorkerCrashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edgeconv.sweeping.executors import Executor, Handle
    from edgeconv.sweeping.jobs import SweepJob
    from edgeconv.sweeping.results import Results
    from edgeconv.types import CellResult

# What is wrong with this machine or the request, and so with every cell.
_OF_ALL = (OutputRefused, SandboxMissing)


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
