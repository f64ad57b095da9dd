"""Jobs on Ray: each in a supervised child of a node that has a core for it.

Without a shared cache the nodes need the directory of the results, the models and the data at the
same paths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.errors import EdgeconvError
from edgeconv.processes.sandbox import Access
from edgeconv.sweeping.jobs import run_job
from edgeconv.sweeping.shared import run_shared, shared_job
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from edgeconv.processes.cluster import RayCluster, RemoteTask
    from edgeconv.store.blobs import Blobs
    from edgeconv.sweeping.executors import Handle
    from edgeconv.sweeping.jobs import JobDone, SweepJob


class RayHandle:
    """A job as a task of Ray."""

    def __init__(self, job: SweepJob, task: RemoteTask[JobDone]) -> None:
        self.job, self.task = job, task

    def has_ended(self) -> bool:
        """Whether the task had, when the executor last waited."""
        return self.task.has_ended

    def error(self) -> EdgeconvError | None:
        """How the job failed, or the task."""
        try:
            self.task.answer()
        except EdgeconvError as error:
            return error
        return None

    def close(self) -> None:
        """Cancel the task; its child ends with the worker."""
        self.task.close()


class RayExecutor:
    """Jobs as tasks of a cluster, each with one core.

    With a `cache` nodes need no path in common with this machine.
    """

    def __init__(self, cluster: RayCluster, jobs: int | None, cache: Blobs | None = None) -> None:
        self._cluster = cluster
        self._cache = cache
        self.width = min(jobs or cluster.cores, cluster.cores)

    def submit(self, job: SweepJob) -> RayHandle:
        """Start a task. Raises as `shared_job`."""
        if self._cache is None:
            return RayHandle(job, self._started(run_job, job, job.name))
        there = shared_job(job, self._cache)
        return RayHandle(job, self._started(run_shared, there, job.name))

    def _started(
        self, function: Callable[[Any], JobDone], job: msgspec.Struct, name: str
    ) -> RemoteTask[JobDone]:
        access, allowance = Access(profile="jobs"), Allowance(timeout_s=math.inf)
        return self._cluster.submit(function, job, name=name, access=access, allowance=allowance)

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a task has ended."""
        self._cluster.wait([handle.task for handle in handles if isinstance(handle, RayHandle)])
