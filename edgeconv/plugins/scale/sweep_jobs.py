"""A job: what one process of a sweep does. It converts, or tunes, then measures cell by cell.

The functions here run in a child, which starts the children of `convert` and `bench` in turn: so
TensorFlow and user code are as confined as everywhere, and only this job ends with this process.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from edgeconv.measure.machine import environment
from edgeconv.plugins.scale.sweep_file import SweepFile
from edgeconv.reporting.columns import refuse_several_outputs
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.table import Verb
from edgeconv.requests.tune import SweepRequest, TuneRequest
from edgeconv.runtimes.choice import device_name
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import RunningTask, start_task
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import cache_directory, code_hash, locked, scratch_directory
from edgeconv.system.store.files import publish_bytes, read_noun, writable_directory
from edgeconv.system.store.notes import in_project
from edgeconv.types import (
    Allowance,
    CellResult,
    Conversion,
    Environment,
    Measurement,
    Report,
    RuntimeChoice,
    Tuning,
)
from edgeconv.types.errors import (
    WORKER_ERRORS,
    EdgeconvError,
    InputRefused,
    ToolFailed,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.types.execution import usable_cores

# How a process ends that takes its neighbors with it: each cell is tried alone then.
DEATHS = (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory)


class JobCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell by its key, the name of its recipe and its runtime."""

    key: str
    recipe: str
    runtime: RuntimeChoice


class SweepJob(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of one model and data set: convert, or tune, then measure.

    `name` is for messages; `results` is the directory of the results, `work` the directory in which
    the code that a SOURCE or a metric names is looked up. One that `waits` runs while no other
    sweep measures times on its machine. One with a `core` runs on that alone, with its children.
    """

    name: str
    cells: tuple[JobCell, ...]
    measuring: BenchRequest
    results: str
    work: str
    converting: ConvertRequest | None = None
    tuning: TuneRequest | None = None
    waits: bool = False
    core: int | None = None

    @property
    def device(self) -> str:
        """The device that all its cells run on, "" for none."""
        return device_name(self.cells[0].runtime)

    @property
    def files(self) -> str | None:
        """The directory of the artifacts."""
        request = self.converting or self.tuning
        return request.directory if request else None

    def alone(self, cell: JobCell) -> SweepJob:
        """The job of one of its cells."""
        request = self.converting and replace(self.converting, to=(cell.recipe,))
        return replace(self, cells=(cell,), converting=request)


class JobDone(msgspec.Struct, frozen=True):
    """How many of a job's cells have results."""

    cells: int


def run_job(job: SweepJob) -> JobDone:
    """Convert and measure, and write the result of each cell.

    Raises the error of a cell whose process died; with several cells, those without a result are to
    be tried alone.
    """
    results = Results(Path(job.results))
    if job.core is not None and sys.platform == "linux":
        os.sched_setaffinity(0, {job.core})
    with timing_alone() if job.waits else contextlib.nullcontext():
        return _do_job(job, results)


@contextlib.contextmanager
def timing_alone(on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A block in which no other sweep of this machine's user measures times."""
    lock = cache_directory() / "timing.lock"
    writable_directory(lock.parent)
    with locked(lock, on_wait=on_wait):
        yield


def _do_job(job: SweepJob, results: Results) -> JobDone:
    os.chdir(job.work)
    files = _tuned(job, results) if job.tuning else _converted(job, results)
    measured = [cell for cell in job.cells if cell.recipe in files]
    for runtimes, recipes in _together(measured):
        cells = [c for c in measured if c.runtime in runtimes and c.recipe in recipes]
        _measure(job, cells, files, results)
    count = sum(results.read(cell.key) is not None for cell in job.cells)
    if count < len(job.cells):
        raise ToolFailed(f"{job.name}: {len(job.cells) - count} cells did not finish")
    return JobDone(count)


def _converted(job: SweepJob, results: Results) -> dict[str, Path]:
    """The published files by recipe; those that failed are written as results."""
    assert job.converting is not None
    directory = job.converting.directory or ""
    try:
        conversion: Conversion = Verb[Conversion]("convert")(job.converting)
    except EdgeconvError as error:
        if isinstance(error, DEATHS):
            raise
        results.fail(job.cells, error)
        return {}
    for failure in conversion.failures:
        failed = WORKER_ERRORS.get(failure.error, ToolFailed)(failure.message, hint=failure.hint)
        if not isinstance(failed, DEATHS) or len(job.cells) == 1:
            results.fail((c for c in job.cells if c.recipe == failure.recipe), failed)
    return {a.recipe.name: Path(directory, a.file) for a in conversion.artifacts}


def _tuned(job: SweepJob, results: Results) -> dict[str, Path]:
    """The file that a search recommends; without one, the cells fail."""
    assert job.tuning is not None
    directory = job.tuning.directory or ""
    kept = Path(directory, "tuning.json")
    if kept.is_file():
        tuning = read_noun(kept, Tuning, what="search")
    else:
        tuning = Verb[Tuning]("tune")(job.tuning)
        publish_bytes(msgspec.json.encode(tuning), kept)
    if not tuning.ok:
        error = ToolFailed(
            f"no artifact stays within a drop of {tuning.max_drop:g}",
            hint=" ".join(tuning.advice[:1]),
        )
        results.fail(job.cells, error)
        return {}
    return {cell.recipe: Path(directory, tuning.artifact) for cell in job.cells}


def _together(cells: Sequence[JobCell]) -> list[tuple[list[RuntimeChoice], list[str]]]:
    """Runtimes whose missing cells have the same recipes: these are measured at once."""
    groups: list[tuple[list[RuntimeChoice], list[str]]] = []
    for runtime in dict.fromkeys(str(cell.runtime) for cell in cells):
        own = [cell for cell in cells if str(cell.runtime) == runtime]
        recipes = [cell.recipe for cell in own]
        same = next((group for group in groups if group[1] == recipes), None)
        if same is None:
            groups.append(([own[0].runtime], recipes))
        else:
            same[0].append(own[0].runtime)
    return groups


def _measure(
    job: SweepJob, cells: Sequence[JobCell], files: dict[str, Path], results: Results
) -> None:
    """Measure the files in the runtimes of the cells, and write a result for each."""
    recipes = dict.fromkeys(cell.recipe for cell in cells)
    runtimes = {str(cell.runtime): cell.runtime for cell in cells}
    request = replace(
        job.measuring,
        models=tuple(str(files[recipe]) for recipe in recipes),
        measuring=replace(job.measuring.measuring, runtimes=tuple(runtimes.values())),
    )
    report: Report = Verb[Report]("bench")(request)
    refuse_several_outputs(report)
    # A device's kernels are compared with this processor's, whose rows are in the report.
    rows = [row for row in report.measurements if row.role == "artifact"]
    for cell in cells:
        row = next(row for row in rows if _is_of(row, cell, job))
        if row.error:
            results.fail((cell,), ToolFailed(row.error))
        else:
            file = files[cell.recipe].relative_to(results.directory).as_posix()
            own = _own(report, row, cell, job)
            results.write(CellResult(key=cell.key, report=own, file=file))


def _is_of(row: Measurement, cell: JobCell, job: SweepJob) -> bool:
    # The file of a search has the name of the recipe that it starts from.
    is_recipe = job.tuning is not None or row.recipe == cell.recipe
    return is_recipe and row.measured_in == str(cell.runtime)


def _own(report: Report, row: Measurement, cell: JobCell, job: SweepJob) -> Report:
    """The report of one row, without what depends on the other rows, or on when it was made."""
    is_timed = job.measuring.measuring.is_timed
    baseline = report.baseline
    if baseline is not None and not is_timed:
        baseline = replace(baseline, batched_us=(), batched_size=None)
    name = f"{cell.recipe} {cell.runtime}"
    return replace(
        report,
        title=job.name,
        measurements=(replace(row, name=name, group=""),),
        baseline=baseline,
        comparisons=(),
        artifacts=tuple(each for each in report.artifacts if each.sha256 == row.sha256),
        conditions=report.conditions if is_timed else None,
        command=(),
        notes=tuple(_notes(report, row, name)),
    )


def _notes(report: Report, row: Measurement, name: str) -> Iterator[str]:
    """The notes that are not on another artifact; those on this one begin with its `name`.

    A warning of its conversion stays as it is: it is about the file, in whichever runtime.
    """
    warnings = {each.sha256: each.verification.warnings for each in report.artifacts}
    own = warnings.pop(row.sha256, ())
    of_others = {warning for each in warnings.values() for warning in each}
    # A name may begin another one.
    artifacts = [each.name for each in report.measurements if each.role == "artifact"]
    names = sorted(artifacts, key=len, reverse=True)
    for note in report.notes:
        of = next((each for each in names if note.startswith(f"{each}: ")), None)
        text = note.partition(": ")[2]
        if text in own or (of is None and text not in of_others):
            yield note
        elif of == row.name and text not in of_others:
            yield name + note.removeprefix(of)


class Keyed(Protocol):
    """What has the key of a cell."""

    @property
    def key(self) -> str:
        """The key."""


class Results:
    """Reads and writes results. A file is whole or not there, also after a power failure."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, key: str) -> CellResult | None:
        """A cell's result; None without one, if it is damaged, or other code refused it."""
        path = self._path(key)
        try:
            result = read_noun(path, CellResult, what="result") if path.is_file() else None
        except InputRefused:
            return None
        if result is None or result.key != key or (result.error and result.code != code_hash()):
            return None
        return result

    def write(self, result: CellResult) -> None:
        """Keep a result. Raises `OutputRefused`."""
        path = self._path(result.key)
        writable_directory(path.parent)
        publish_bytes(msgspec.json.encode(in_project(result, path)), path)

    def fail(self, cells: Iterable[Keyed], error: EdgeconvError) -> None:
        """Keep a failure for each cell, by the first line of its message."""
        for cell in cells:
            failed = CellResult(key=cell.key, error=type(error).__name__, code=code_hash())
            self.write(replace(failed, reason=error.headline, hint=error.hint))

    def remove(self, key: str) -> None:
        """Forget a result."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.directory / "cells" / key[:2] / f"{key}.json"


# Where jobs run. An executor starts one, waits until any has ended, and cancels all.

# TensorFlow with its converter, the quantizer and the samples of a small model.
_LEAST_BYTES = 2 << 30
# The float graph, the quantized one and their calibration, by the size of the model.
_BYTES_OF_MODEL = 12


class Handle:
    """A job that was submitted, and what runs it."""

    def __init__(self, job: SweepJob, task: RunningTask[JobDone]) -> None:
        self.job, self.task = job, task

    def has_ended(self) -> bool:
        """Whether it has."""
        return self.task.has_ended()

    def error(self) -> EdgeconvError | None:
        """How a job that has ended failed, None if it did not."""
        try:
            self.task.answer()
        except EdgeconvError as error:
            return error
        return None

    def close(self) -> None:
        """Cancel it, where it runs; with its processes."""
        self.task.close()


class Executor(Protocol):
    """Runs jobs, at most `width` at once."""

    width: int

    def submit(self, job: SweepJob) -> Handle:
        """Start a job."""

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until one of them has ended. Raises `KeyboardInterrupt`."""


class LocalExecutor:
    """Jobs as supervised children of this process. It limits neither: the children of a job are.

    With a job for each core, each is kept on its core: the threads of a converter, which take a
    second core where it is free, would only hinder the neighbor there.
    """

    def __init__(self, width: int, scratch: Path) -> None:
        self.width = width
        self._scratch = scratch
        cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
        self._cores = cores if len(cores) == width else []
        self._pinned: list[Handle] = []

    def submit(self, job: SweepJob) -> Handle:
        """Start a child."""
        self._pinned = [handle for handle in self._pinned if not handle.has_ended()]
        taken = {handle.job.core for handle in self._pinned}
        core = next((each for each in self._cores if each not in taken), None)
        handle = self._started(replace(job, core=core))
        self._pinned.append(handle)
        return handle

    def _started(self, job: SweepJob) -> Handle:
        task = start_task(
            run_job,
            job,
            label=job.name,
            scratch=self._scratch,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
        )
        return Handle(job, task)

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a child has ended."""
        poll_until(lambda: any(handle.has_ended() for handle in handles))


class Processor(NamedTuple):
    """What times depend on: the machine's architecture, its processor, and how many cores."""

    machine: str
    cpu: str
    cores: int


def processor_of(environment: Environment) -> Processor:
    """That of a machine."""
    return Processor(environment.machine, environment.cpu, environment.cores)


def processor_here(_file: SweepFile, _runtimes: Sequence[RuntimeChoice]) -> Processor:
    """That of this machine."""
    return processor_of(environment())


class ThisMachine:
    """A sweep's jobs as processes of this machine."""

    def __init__(self, request: SweepRequest, on_progress: Callable[[str], None]) -> None:
        self._request, self._on_progress = request, on_progress

    def processor(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> Processor:
        """This machine's, on which times are measured."""
        return processor_here(file, runtimes)

    @contextlib.contextmanager
    def executor(self, file: SweepFile, jobs: Sequence[SweepJob]) -> Iterator[Executor]:
        """Processes while cores and memory allow; with times one, and no other sweep with times."""
        waiting = "waiting for another sweep with times"
        with contextlib.ExitStack() as stack:
            width = 1
            if file.is_timed:
                stack.enter_context(timing_alone(lambda: self._on_progress(waiting)))
            else:
                limit_bytes = self._request.execution.allowance.memory_bytes
                width = self._request.jobs or fitting_width(jobs, limit_bytes)
            yield LocalExecutor(width, stack.enter_context(scratch_directory()))


def fitting_width(jobs: Sequence[SweepJob], limit_bytes: int) -> int:
    """How many jobs fit into the cores, and into the memory that is available now; 1 at least.

    A job takes `limit_bytes`, or without a limit an estimate by its model's size.
    """
    import psutil

    largest = max((_size_bytes(Path(job.measuring.baseline or "")) for job in jobs), default=0)
    each_bytes = limit_bytes or _LEAST_BYTES + _BYTES_OF_MODEL * largest
    available = int(psutil.virtual_memory().available)
    return max(1, min(usable_cores(), available // each_bytes, len(jobs)))


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())
