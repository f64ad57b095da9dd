"""Where jobs run. An executor starts one, waits until any has ended, and cancels all."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from edgeconv.plugins.scale.sweep_file import SweepFile
from edgeconv.plugins.scale.sweep_jobs import JobDone, SweepJob, run_job, timing_alone
from edgeconv.plugins.scale.sweep_plan import Processor, processor_here
from edgeconv.requests.tune import SweepRequest
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import Task, start_task
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, RuntimeChoice
from edgeconv.types.errors import EdgeconvError
from edgeconv.types.execution import usable_cores

# TensorFlow with its converter, the quantizer and the samples of a small model.
_LEAST_BYTES = 2 << 30
# The float graph, the quantized one and their calibration, by the size of the model.
_BYTES_OF_MODEL = 12


class Handle(Protocol):
    """A job that was submitted."""

    @property
    def job(self) -> SweepJob:
        """The job."""

    def has_ended(self) -> bool:
        """Whether it has."""

    def error(self) -> EdgeconvError | None:
        """How a job that has ended failed, None if it did not."""

    def close(self) -> None:
        """Cancel it, where it runs; with its processes."""


class Executor(Protocol):
    """Runs jobs, at most `width` at once."""

    width: int

    def submit(self, job: SweepJob) -> Handle:
        """Start a job."""

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until one of them has ended. Raises `KeyboardInterrupt`."""


class LocalHandle:
    """A job in a supervised child of this machine."""

    def __init__(self, job: SweepJob, task: Task[JobDone]) -> None:
        self.job = job
        self._task = task

    def has_ended(self) -> bool:
        """Whether the child has."""
        return self._task.child.has_ended()

    def error(self) -> EdgeconvError | None:
        """How the child or its function failed."""
        self.close()
        try:
            self._task.answer()
        except EdgeconvError as error:
            return error
        return None

    def close(self) -> None:
        """End the child and all that it started."""
        self._task.child.kill()


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
        self._pinned: list[LocalHandle] = []

    def submit(self, job: SweepJob) -> LocalHandle:
        """Start a child."""
        self._pinned = [handle for handle in self._pinned if not handle.has_ended()]
        taken = {handle.job.core for handle in self._pinned}
        core = next((each for each in self._cores if each not in taken), None)
        handle = self._started(replace(job, core=core))
        self._pinned.append(handle)
        return handle

    def _started(self, job: SweepJob) -> LocalHandle:
        task = start_task(
            run_job,
            job,
            label=job.name,
            scratch=self._scratch,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
        )
        return LocalHandle(job, task)

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a child has ended."""
        poll_until(lambda: any(handle.has_ended() for handle in handles))


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
