"""Jobs on Ray: each in a supervised child of a node that has a core for it.

A job that measures times has all cores of a node. A cluster of other machines gets the files below
the current directory that a job reads through Ray's object store. The node has a copy of the file
tree with them, and works in its copy of the current directory; the results and artifacts come back
when the job ends.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from edgeconv.data.code import custom_files, is_path
from edgeconv.measure.machine import environment
from edgeconv.plugins.scale.cluster import (
    RayCluster,
    RemoteTask,
    parse_address,
    returned_directory,
    sent_directory,
)
from edgeconv.plugins.scale.sweep_file import SweepFile
from edgeconv.plugins.scale.sweep_jobs import (
    Executor,
    Handle,
    JobDone,
    Processor,
    SweepJob,
    processor_of,
    run_job,
)
from edgeconv.requests.request import Nothing, Request
from edgeconv.requests.texts import source_reach
from edgeconv.requests.tune import SweepRequest
from edgeconv.runtimes.choice import is_device
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store.files import publish_bytes, writable_directory
from edgeconv.types import Allowance, Environment, RuntimeChoice
from edgeconv.types.errors import EdgeconvError, WorkerCrashed
from edgeconv.types.words import listed


class RayHandle(Handle):
    """A job as a task of Ray."""

    task: RemoteTask[JobDone]

    def error(self) -> EdgeconvError | None:
        """How the job failed, or the task. What came back is published. Raises `OutputRefused`."""
        failure = super().error()
        keep_returned(self.task.files, Path(self.job.results))
        return failure


class RayExecutor:
    """Jobs as tasks of a cluster, `width` at most.

    Those that measure times run on the nodes with the ids `timing`, each as the only one there.
    Where each `carries` its files, nodes need no path in common with this machine.
    """

    def __init__(
        self, cluster: RayCluster, width: int, timing: Sequence[str] = (), *, carries: bool = False
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
        nodes = self._cluster.nodes()
        cores = {node: count for node, count in nodes.items() if node in self._timing}
        if not cores:
            return Handle(job, LostTask())
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
        tasks = [handle.task for handle in handles if isinstance(handle, RayHandle)]
        if len(tasks) == len(handles):
            self._cluster.wait(tasks)


class LostTask:
    """What runs a job that no node is left for."""

    def has_ended(self) -> bool:
        """It has."""
        return True

    def answer(self) -> JobDone:
        """Raises why there is none."""
        raise WorkerCrashed("every node that measures times is lost")

    def close(self) -> None:
        """Nothing runs."""


class ClusterSite:
    """The nodes of a cluster, which is connected to when it is needed, until `stack` is closed."""

    def __init__(
        self, request: SweepRequest, stack: contextlib.ExitStack, on_progress: Callable[[str], None]
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
            self._processors = processors(cluster, [*cluster.nodes()])
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


class CarriedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as it is on the machine that sends it."""

    job: SweepJob


def run_carried(carried: CarriedJob) -> JobDone:
    """On a node: `jobs.run_job` on the files that were sent. The results go back as files."""
    job = carried.job
    work, results = sent_directory() / _in_tree(job.work), returned_directory()
    work.mkdir(parents=True, exist_ok=True)
    results.mkdir()

    def there(directory: str | None) -> str:
        return str(results / Path(directory or "").relative_to(job.results))

    converting = job.converting and replace(
        job.converting, directory=there(job.converting.directory)
    )
    tuning = job.tuning and replace(job.tuning, directory=there(job.tuning.directory))
    moved = replace(job, work=str(work), results=str(results), converting=converting, tuning=tuning)
    return run_job(moved)


def carried_files(job: SweepJob) -> dict[str, Path]:
    """What a job reads by a relative path, or as code: each file by its path in the copied tree.

    What has an absolute path must be there on the nodes.
    """
    return {_in_tree(os.path.normpath(file.absolute())): file for file in _files_of(job)}


def keep_returned(files: Mapping[str, bytes], directory: Path) -> None:
    """Publish what came back into the directory of the results. Raises `OutputRefused`."""
    # A result names its artifact, which has to be there first.
    for name in sorted(files, key=lambda name: (name.startswith("cells/"), name)):
        writable_directory((directory / name).parent)
        publish_bytes(files[name], directory / name)


def _in_tree(path: str) -> str:
    return Path(path).relative_to(Path(path).anchor).as_posix()


def _files_of(job: SweepJob) -> Iterator[Path]:
    requests: tuple[Request | None, ...] = (job.converting, job.tuning, job.measuring)
    for request in filter(None, requests):
        reads = request.inputs()
        for path in reads.paths:
            # The files of custom objects have absolute paths, and are called by their module.
            yield from _here(path) if path.suffix == ".py" else _files(str(path))
        for source in reads.sources:
            for reach in source_reach(source):
                yield from _code(reach.text) if reach.sort == "code" else _files(reach.text)
    for metric in job.measuring.measuring.metrics:
        if metric.module:
            yield from _code(metric.module)


def _code(text: str) -> Iterator[Path]:
    """The files of a module with what it imports, without installed packages."""
    module = text if is_path(text) else text.partition(":")[0]
    for file in custom_files(module, str(Path.cwd())):
        yield from _here(file)


def _here(file: Path) -> Iterator[Path]:
    if file.absolute().is_relative_to(Path.cwd()):
        yield file


def _files(text: str) -> Iterator[Path]:
    path = Path(text)
    if path.is_absolute():
        return
    for match in [path] if path.exists() else Path().glob(text):
        for file in match.rglob("*") if match.is_dir() else (match,):
            if file.is_file():
                yield file
