"""The verb `sweep`: models, recipes, runtimes and data as cells, of which only missing ones run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, UsageError
from edgeconv.processes.progress import CountedLine
from edgeconv.reporting.sweeps.files import JSON_NAME, write_sweep
from edgeconv.runtimes.leases import is_device
from edgeconv.store import cache_directory, locked, owned, read_noun, scratch_directory
from edgeconv.store.blobs import Blobs
from edgeconv.store.files import writable_directory
from edgeconv.sweeping.executors import LocalExecutor, fitting_width
from edgeconv.sweeping.plan import make_plan
from edgeconv.sweeping.results import Results
from edgeconv.sweeping.schedule import run_jobs
from edgeconv.sweeping.shared import SharedResults
from edgeconv.sweeping.summary import summarize
from edgeconv.types import Swept
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.requests.sweep import SweepRequest
    from edgeconv.sweeping.executors import Executor
    from edgeconv.sweeping.jobs import SweepJob
    from edgeconv.sweeping.plan import SweepPlan
    from edgeconv.types import CellResult


def sweep(request: SweepRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Swept:
    """Measure every cell that has no result yet, and write one report of all.

    A cell that fails does not end the sweep: it is in the result with its reason. Raises an
    `EdgeconvError` where the file is wrong, or nothing could run at all.
    """
    file = Path(request.file)
    directory = Path(request.directory or f"{file.absolute().stem}.sweep").absolute()
    cache = _cache(request)
    plan = make_plan(request, directory, on_progress)
    results = Results(directory) if cache is None else SharedResults(directory, cache)
    if not request.status:
        waiting = f"waiting for another sweep into {directory}"
        with owned(directory, on_wait=lambda: on_progress(waiting)):
            _run(request, plan, results, cache, on_progress)
            whole = _summary(plan, results, file.stem)
            write_sweep(whole, directory)
            return whole
    return _summary(plan, results, file.stem)


def _cache(request: SweepRequest) -> Blobs | None:
    """What nodes exchange files through. Raises `UsageError`."""
    url = request.shared_cache
    if url is None:
        return None
    if request.on is None:
        raise UsageError("--shared-cache is for the nodes of --on", hint="add --on, or remove it")
    return Blobs(url if "://" in url else str(Path(url).absolute()))


def _summary(plan: SweepPlan, results: Results, title: str) -> Swept:
    directory = results.directory
    return summarize(plan, results, _last(directory), title=title, directory=str(directory))


def _last(directory: Path) -> Swept | None:
    """The last sweep of the directory; None where there is none, or of another version."""
    with contextlib.suppress(InputRefused):
        return read_noun(directory / JSON_NAME, Swept, what="sweep")
    return None


def _run(
    request: SweepRequest,
    plan: SweepPlan,
    results: Results,
    cache: Blobs | None,
    on_progress: Callable[[str], None],
) -> None:
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

    with _executor(request, plan, jobs, cache, on_progress) as executor:
        run_jobs(jobs, executor, results, show)


@contextlib.contextmanager
def _executor(
    request: SweepRequest,
    plan: SweepPlan,
    jobs: Sequence[SweepJob],
    cache: Blobs | None,
    on_progress: Callable[[str], None],
) -> Iterator[Executor]:
    """Who runs the jobs: this machine or a cluster. Raises `UsageError` for one that cannot."""
    is_timed = plan.file.is_timed
    if request.on is not None:
        from edgeconv.processes.cluster import RayCluster, parse_address
        from edgeconv.sweeping.on_ray import RayExecutor

        address = parse_address(request.on)
        if is_timed:
            hint = "remove timing, and measure times in a sweep without --on"
            raise plan.file.written.error(("timing",), "a cluster is shared: no times there", hint)
        devices = sorted({str(c.runtime) for j in jobs for c in j.cells if is_device(c.runtime)})
        if devices:
            hint = "measure on devices in a sweep without --on: there each has one run at a time"
            message = f"{listed(devices)}: nodes of a cluster may use a device at once"
            raise plan.file.written.error(("runtimes",), message, hint)
        on_progress("connecting to Ray")
        with RayCluster(address, request.jobs) as cluster:
            yield RayExecutor(cluster, request.jobs, cache)
        return
    width = 1 if is_timed else request.jobs or fitting_width(jobs, _limit_bytes(request))
    machine = _machine(on_progress) if is_timed else contextlib.nullcontext()
    with machine, scratch_directory() as scratch:
        yield LocalExecutor(width, scratch)


def _limit_bytes(request: SweepRequest) -> int:
    return request.execution.allowance.memory_bytes


@contextlib.contextmanager
def _machine(on_progress: Callable[[str], None]) -> Iterator[None]:
    """Hold this machine against other sweeps that measure times."""
    lock = cache_directory() / "timing.lock"
    writable_directory(lock.parent)
    with locked(lock, on_wait=lambda: on_progress("waiting for another sweep with times")):
        yield
