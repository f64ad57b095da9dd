"""Jobs on Ray: each in a supervised child of a node that has a core for it.

The nodes need the directory of the results, the models and the data at the same paths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.errors import EdgeconvError
from edgeconv.processes.sandbox import Access
from edgeconv.processes.workers import poll_until
from edgeconv.sweeping.jobs import run_job
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.processes.cluster import RayCluster, RemoteTask
    from edgeconv.sweeping.executors import Handle
    from edgeconv.sweeping.jobs import JobDone, SweepJob


class RayHandle:
    """A job as a task of Ray."""

    def __init__(self, job: SweepJob, task: RemoteTask[JobDone]) -> None:
        self.job = job
        self._task = task

    def has_ended(self) -> bool:
        """Whether the task has."""
        return self._task.has_ended()

    def error(self) -> EdgeconvError | None:
        """How the job failed, or the task."""
        try:
            self._task.answer()
        except EdgeconvError as error:
            return error
        return None

    def close(self) -> None:
        """Cancel the task; its child ends with the worker."""
        self._task.close()


class RayExecutor:
    """Jobs as tasks of a cluster, each with one core."""

    def __init__(self, cluster: RayCluster, jobs: int | None) -> None:
        self._cluster = cluster
        self.width = min(jobs or cluster.cores, cluster.cores)

    def submit(self, job: SweepJob) -> RayHandle:
        """Start a task."""
        task = self._cluster.submit(
            run_job,
            job,
            name=job.name,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
        )
        return RayHandle(job, task)

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a task has ended."""
        poll_until(lambda: any(handle.has_ended() for handle in handles))
