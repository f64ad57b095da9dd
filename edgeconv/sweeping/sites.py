"""Where the jobs of a sweep run: processes of this machine, or the nodes of a cluster."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from edgeconv.runtimes.leases import device_name, is_device, is_device_name
from edgeconv.store import scratch_directory
from edgeconv.sweeping.executors import LocalExecutor, fitting_width
from edgeconv.sweeping.jobs import timing_alone
from edgeconv.sweeping.plan import Processor, processor_here
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.processes.cluster import RayCluster
    from edgeconv.requests.sweep import SweepRequest
    from edgeconv.store.blobs import Blobs
    from edgeconv.sweeping.executors import Executor
    from edgeconv.sweeping.file import SweepFile
    from edgeconv.sweeping.jobs import SweepJob
    from edgeconv.types import RuntimeChoice


class Site(Protocol):
    """Where jobs run."""

    def processor(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> Processor:
        """That on which times are measured. Raises `UsageError` where there are several."""

    def executor(
        self, file: SweepFile, jobs: Sequence[SweepJob]
    ) -> contextlib.AbstractContextManager[Executor]:
        """Who runs these jobs. Raises `UsageError` for what cannot run."""


@contextlib.contextmanager
def open_site(
    request: SweepRequest, cache: Blobs | None, on_progress: Callable[[str], None]
) -> Iterator[Site]:
    """The site that a request names. Raises `UsageError` for what is not a cluster."""
    if request.on is None:
        yield ThisMachine(request, on_progress)
        return
    from edgeconv.processes.cluster import parse_address

    address = parse_address(request.on)
    with contextlib.ExitStack() as stack:
        yield ClusterSite(address, request, cache, stack, on_progress)


class ThisMachine:
    """Processes of this machine."""

    def __init__(self, request: SweepRequest, on_progress: Callable[[str], None]) -> None:
        self._request, self._on_progress = request, on_progress

    def processor(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> Processor:
        """That of this machine."""
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


class ClusterSite:
    """The nodes of a cluster, which is connected to when it is needed, until `stack` is closed."""

    def __init__(
        self,
        address: str,
        request: SweepRequest,
        cache: Blobs | None,
        stack: contextlib.ExitStack,
        on_progress: Callable[[str], None],
    ) -> None:
        self._address, self._request, self._cache = address, request, cache
        self._stack, self._on_progress = stack, on_progress
        self._cluster: RayCluster | None = None
        self._processors: dict[str, Processor] = {}

    def processor(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> Processor:
        """That of all nodes, of which each is asked once. Raises `UsageError`."""
        from edgeconv.sweeping.on_ray import processors

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
        """Tasks of a core each, or with times of a whole node; and a task for each device."""
        from edgeconv.sweeping.on_ray import RayExecutor

        cluster = self._connected(file, [cell.runtime for job in jobs for cell in job.cells])
        devices = sorted({job.device for job in jobs} - {""})
        _refuse_missing(devices, cluster, file)
        timing = tuple(self._processors) if file.is_timed else ()
        slots = (len(timing) or cluster.cores) + len(devices)
        width = min(self._request.jobs or slots, slots)
        yield RayExecutor(cluster, width, timing, self._cache)

    def _connected(self, file: SweepFile, runtimes: Sequence[RuntimeChoice]) -> RayCluster:
        from edgeconv.processes.cluster import RayCluster

        if self._cluster is None:
            if unnamed := [str(each) for each in runtimes if is_device(each) and not each.location]:
                message = f"{unnamed[0]} may be a different device on each node"
                hint = f"name it, as in {unnamed[0]}:SERIAL; see `edgeconv worker --help`"
                raise file.written.error(("runtimes",), message, hint)
            self._on_progress("connecting to Ray")
            devices = {device_name(each) for each in runtimes} - {""}
            opened = RayCluster(self._address, self._request.jobs, sorted(devices))
            self._cluster = self._stack.enter_context(opened)
        return self._cluster


def _refuse_missing(devices: Sequence[str], cluster: RayCluster, file: SweepFile) -> None:
    """Raise `UsageError` for a device that no node announces, or several do."""
    for device in devices:
        announcing = [node.address for node in cluster.announcing(device)]
        if not announcing:
            resources = {each for node in cluster.nodes() for each in node.resources}
            known = listed(sorted(filter(is_device_name, resources))) or "none"
            message = f"no node of the cluster announces {device}; announced: {known}"
            hint = f"on the machine that reaches it: edgeconv worker HEAD:PORT --devices {device}"
            raise file.written.error(("runtimes",), message, hint)
        if len(announcing) > 1:
            message = (
                f"{device} is announced by {listed(announcing)}, and could get two jobs at once"
            )
            raise file.written.error(("runtimes",), message, "stop all but one of these workers")
