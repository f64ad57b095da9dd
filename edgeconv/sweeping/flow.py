"""The verb `sweep`: models, recipes, runtimes and data as cells, of which only missing ones run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, UsageError
from edgeconv.processes.progress import CountedLine
from edgeconv.reporting.sweeps.files import JSON_NAME, write_sweep
from edgeconv.store import owned, read_noun
from edgeconv.store.blobs import Blobs
from edgeconv.sweeping.plan import make_plan
from edgeconv.sweeping.results import Results
from edgeconv.sweeping.schedule import run_jobs
from edgeconv.sweeping.shared import SharedResults
from edgeconv.sweeping.sites import open_site
from edgeconv.sweeping.summary import summarize
from edgeconv.types import Swept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.requests.sweep import SweepRequest
    from edgeconv.sweeping.plan import SweepPlan
    from edgeconv.sweeping.sites import Site
    from edgeconv.types import CellResult


def sweep(request: SweepRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Swept:
    """Measure every cell that has no result yet, and write one report of all.

    A cell that fails does not end the sweep: it is in the result with its reason. Raises an
    `EdgeconvError` where the file is wrong, or nothing could run at all.
    """
    file = Path(request.file)
    directory = Path(request.directory or f"{file.absolute().stem}.sweep").absolute()
    cache = _cache(request)
    with open_site(request, cache, on_progress) as site:
        plan = make_plan(request, directory, on_progress, site.processor)
        results = Results(directory) if cache is None else SharedResults(directory, cache)
        if request.status:
            return _summary(plan, results, file.stem)
        waiting = f"waiting for another sweep into {directory}"
        with owned(directory, on_wait=lambda: on_progress(waiting)):
            _run(request, plan, results, site, on_progress)
            whole = _summary(plan, results, file.stem)
            write_sweep(whole, directory)
            return whole


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
    site: Site,
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
