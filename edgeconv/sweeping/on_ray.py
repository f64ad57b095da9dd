"""Jobs on Ray: each in a supervised child of a node that has a core for it.

A job that measures times has all cores of a node. A job of a device runs on the node that announces
it, with times too. Without a shared cache the nodes need the directory of the results, the models
and the data at the same paths.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from edgeconv.errors import EdgeconvError, WorkerCrashed
from edgeconv.measure.machine import environment
from edgeconv.processes.sandbox import Access
from edgeconv.requests.request import Nothing
from edgeconv.sweeping.jobs import run_job
from edgeconv.sweeping.plan import processor_of
from edgeconv.sweeping.shared import run_shared, shared_job
from edgeconv.types import Allowance, Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from edgeconv.processes.cluster import RayCluster, RemoteTask
    from edgeconv.store.blobs import Blobs
    from edgeconv.sweeping.executors import Handle
    from edgeconv.sweeping.jobs import JobDone, SweepJob
    from edgeconv.sweeping.plan import Processor


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
    """Jobs as tasks of a cluster, `width` at most.

    Those that measure times run on the nodes with the ids `timing`, each as the only one there.
    With a `cache` nodes need no path in common with this machine.
    """

    def __init__(
        self,
        cluster: RayCluster,
        width: int,
        timing: Sequence[str] = (),
        cache: Blobs | None = None,
    ) -> None:
        self.width = width
        self._cluster = cluster
        self._timing = timing
        self._cache = cache
        self._loads: dict[RayHandle, str] = {}

    def submit(self, job: SweepJob) -> Handle:
        """Start a task. Raises as `shared_job`; a device that is lost fails the job."""
        if not (job.device or self._timing):
            return self._started(job, _Room())
        if job.device:
            announcing = self._cluster.announcing(job.device)
            if len(announcing) != 1:
                count = f"{len(announcing)} nodes announce" if announcing else "no node announces"
                return LostHandle(job, WorkerCrashed(f"{count} {job.device} now"))
            return self._started(job, _Room(announcing[0].id, device=job.device))
        cores = {node.id: node.cores for node in self._cluster.nodes() if node.id in self._timing}
        if not cores:
            return LostHandle(job, WorkerCrashed("every node that measures times is lost"))
        self._loads = {each: node for each, node in self._loads.items() if not each.has_ended()}
        idlest = min(cores, key=[*self._loads.values()].count)
        handle = self._started(replace(job, waits=True), _Room(idlest, cores[idlest]))
        self._loads[handle] = idlest
        return handle

    def _started(self, job: SweepJob, room: _Room) -> RayHandle:
        if self._cache is None:
            return RayHandle(job, self._task(run_job, job, job.name, room))
        there = shared_job(job, self._cache)
        return RayHandle(job, self._task(run_shared, there, job.name, room))

    def _task(
        self, function: Callable[[Any], JobDone], job: msgspec.Struct, name: str, room: _Room
    ) -> RemoteTask[JobDone]:
        return self._cluster.submit(
            function,
            job,
            name=name,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
            cores=room.cores,
            device=room.device,
            node=room.node,
        )

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a task has ended."""
        if not any(isinstance(handle, LostHandle) for handle in handles):
            self._cluster.wait([handle.task for handle in handles if isinstance(handle, RayHandle)])


class _Room(NamedTuple):
    """What a task takes: a node by its id ("": any), how many cores of it, and a device."""

    node: str = ""
    cores: int = 1
    device: str = ""


class LostHandle:
    """A job that could not start."""

    def __init__(self, job: SweepJob, error: EdgeconvError) -> None:
        self.job, self._error = job, error

    def has_ended(self) -> bool:
        """It has."""
        return True

    def error(self) -> EdgeconvError:
        """Why it could not."""
        return self._error

    def close(self) -> None:
        """Nothing runs."""


def processors(cluster: RayCluster, nodes: Sequence[str]) -> dict[str, Processor]:
    """The processor of each of these nodes, by its id, but for those that are lost.

    Raises `WorkerCrashed` where all are.
    """
    tasks = {
        node: cluster.submit(
            environment_there,
            Nothing(),
            name="asking a node",
            access=Access(),
            allowance=Allowance(),
            cores=0,
            node=node,
        )
        for node in nodes
    }
    answers = {}
    for node, task in tasks.items():
        # Ray names a node for some seconds after its end.
        with contextlib.suppress(WorkerCrashed):
            answers[node] = processor_of(task.answer())
    if not answers:
        raise WorkerCrashed(
            "no node of the cluster answers", hint="check `ray status` on the cluster"
        )
    return answers


def environment_there(_request: Nothing) -> Environment:
    """The machine that this runs on."""
    return environment()
