"""Jobs on Ray: each in a supervised child of a node that has a core for it.

A job that measures times has all cores of a node. A cluster of other machines gets the files that a
job reads, and gives its results, through Ray's object store; see `carried`.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from edgeconv.measure.machine import environment
from edgeconv.plugins.scale.cluster import RayCluster, parse_address
from edgeconv.plugins.scale.sweeping.carried import (
    CarriedJob,
    carried_files,
    keep_returned,
    run_carried,
)
from edgeconv.plugins.scale.sweeping.jobs import run_job
from edgeconv.plugins.scale.sweeping.plan import processor_of
from edgeconv.requests.request import Nothing
from edgeconv.runtimes.leases import is_device
from edgeconv.system.processes.sandbox import Access
from edgeconv.types import Allowance, Environment
from edgeconv.types.errors import EdgeconvError, WorkerCrashed
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import msgspec

    from edgeconv.plugins.scale.cluster import RemoteTask
    from edgeconv.plugins.scale.sweeping.executors import Executor, Handle
    from edgeconv.plugins.scale.sweeping.file import SweepFile
    from edgeconv.plugins.scale.sweeping.jobs import JobDone, SweepJob
    from edgeconv.plugins.scale.sweeping.plan import Processor
    from edgeconv.requests.tune import SweepRequest
    from edgeconv.types import RuntimeChoice


class RayHandle:
    """A job as a task of Ray."""

    def __init__(self, job: SweepJob, task: RemoteTask[JobDone]) -> None:
        self.job, self.task = job, task

    def has_ended(self) -> bool:
        """Whether the task had, when the executor last waited."""
        return self.task.has_ended

    def error(self) -> EdgeconvError | None:
        """How the job failed, or the task. What came back is published. Raises `OutputRefused`."""
        failure = None
        try:
            self.task.answer()
        except EdgeconvError as error:
            failure = error
        keep_returned(self.task.files, Path(self.job.results))
        return failure

    def close(self) -> None:
        """Cancel the task; its child ends with the worker."""
        self.task.close()


class RayExecutor:
    """Jobs as tasks of a cluster, `width` at most.

    Those that measure times run on the nodes with the ids `timing`, each as the only one there.
    Where each `carries` its files, nodes need no path in common with this machine.
    """

    def __init__(
        self,
        cluster: RayCluster,
        width: int,
        timing: Sequence[str] = (),
        *,
        carries: bool = False,
    ) -> None:
        self.width = width
        self._cluster = cluster
        self._timing = timing
        self._carries = carries
        # The files that are in Ray's object store, by their paths in the copied tree.
        self._stored: dict[str, Any] = {}
        self._loads: dict[RayHandle, str] = {}

    def submit(self, job: SweepJob) -> Handle:
        """Start a task."""
        if not self._timing:
            return self._started(job)
        cores = {node.id: node.cores for node in self._cluster.nodes() if node.id in self._timing}
        if not cores:
            return LostHandle(job, WorkerCrashed("every node that measures times is lost"))
        self._loads = {each: node for each, node in self._loads.items() if not each.has_ended()}
        idlest = min(cores, key=[*self._loads.values()].count)
        handle = self._started(replace(job, waits=True), idlest, cores[idlest])
        self._loads[handle] = idlest
        return handle

    def _started(self, job: SweepJob, node: str = "", cores: int = 1) -> RayHandle:
        function: Callable[[Any], JobDone] = run_carried if self._carries else run_job
        content: msgspec.Struct = CarriedJob(job=job) if self._carries else job
        task = self._cluster.submit(
            function,
            content,
            name=job.name,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
            cores=cores,
            node=node,
            sent=self._sent(job) if self._carries else {},
        )
        return RayHandle(job, task)

    def _sent(self, job: SweepJob) -> dict[str, Any]:
        """What a job reads, put into the object store once for all jobs."""
        files = carried_files(job)
        for name in files.keys() - self._stored.keys():
            self._stored[name] = self._cluster.ray.put(files[name].read_bytes())
        return {name: self._stored[name] for name in files}

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a task has ended."""
        if not any(isinstance(handle, LostHandle) for handle in handles):
            self._cluster.wait([handle.task for handle in handles if isinstance(handle, RayHandle)])


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


class ClusterSite:
    """The nodes of a cluster, which is connected to when it is needed, until `stack` is closed."""

    def __init__(
        self,
        request: SweepRequest,
        stack: contextlib.ExitStack,
        on_progress: Callable[[str], None],
    ) -> None:
        """Raises `UsageError` for what is not a cluster."""
        self._address = parse_address(request.on or "")
        self._request, self._stack, self._on_progress = request, stack, on_progress
        self._cluster: RayCluster | None = None
        self._processors: dict[str, Processor] = {}

    def processor(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> Processor:
        """The one of all nodes, of which each is asked once. Raises `UsageError`."""
        if not self._processors:
            cluster = self._connected(file, runtimes)
            self._processors = processors(cluster, [node.id for node in cluster.nodes()])
        first, *others = sorted(set(self._processors.values()))
        if others:
            names = listed(f"{each.cpu} with {each.cores} cores" for each in (first, *others))
            hint = "use nodes of one kind, or measure times in a sweep without --on"
            message = f"the nodes have {names}: their times cannot be compared"
            raise file.written.error(("timing",), message, hint)
        return first

    @contextlib.contextmanager
    def executor(self, file: SweepFile, jobs: Sequence[SweepJob]) -> Iterator[Executor]:
        """Tasks of a core each, or with times of a whole node."""
        cluster = self._connected(file, [cell.runtime for job in jobs for cell in job.cells])
        timing = tuple(self._processors) if file.is_timed else ()
        slots = len(timing) or cluster.cores
        width = min(self._request.jobs or slots, slots)
        yield RayExecutor(cluster, width, timing, carries=self._address != "local")

    def _connected(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> RayCluster:
        if self._cluster is None:
            if devices := [str(each) for each in runtimes if is_device(each)]:
                hint = "remove it here, or sweep without --on on the machine that reaches it"
                message = f"{devices[0]} is reached from one machine, not from a cluster's nodes"
                raise file.written.error(("runtimes",), message, hint)
            self._on_progress("connecting to Ray")
            opened = RayCluster(self._address, self._request.jobs)
            self._cluster = self._stack.enter_context(opened)
        return self._cluster


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
