"""A cluster of Ray: connected to or started, and functions of this package run on its nodes.

Ray's workers import no TensorFlow: each starts the same supervised child as `tasks`. They
need edgeconv in their environment.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from edgeconv.system.processes.failures import ChildFailure
from edgeconv.system.processes.sandbox import Access, sandbox_mode, using
from edgeconv.system.processes.tasks import answer_type, job_type, start_task, task_directory
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance
from edgeconv.types.decoding import ready
from edgeconv.types.errors import EdgeconvError, ToolFailed, UsageError, WorkerCrashed
from edgeconv.types.execution import SandboxMode, usable_cores
from edgeconv.types.words import first_line

Answer = TypeVar("Answer")

_ADDRESS = re.compile(r"ray://(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")
_MODE = "RAY_AUTH_MODE"
# The folders in the scratch directory of a task: for files that came with it, and that go back.
_SENT, _RETURNED = "sent", "returned"
# Ray notices the end of a task at once; in between, an interrupt is noticed.
_WAIT_S = 0.5


def parse_address(text: str) -> str:
    """The address of a cluster, "local" for one that is started here. Raises `UsageError`."""
    if text == "ray":
        return "local"
    if not _ADDRESS.fullmatch(text):
        raise UsageError(f"--on {text!r} is not a cluster", hint="ray, or ray://HOST:PORT")
    return text


class RemoteTask(Generic[Answer]):
    """A function of this package, running in a supervised child of a node.

    `files` are set by `answer`, also where that raises the function's error: the content of each
    file of `returned_directory()`, by its path there.
    """

    def __init__(self, name: str, ref: Any, ray: Any, kind: type[Answer]) -> None:
        self.ref, self.was_over = ref, False
        self.files: dict[str, bytes] = {}
        self._name, self._ray, self._kind = name, ray, kind

    def has_ended(self) -> bool:
        """Whether it had, when `RayCluster.wait` was last called with it."""
        return self.was_over

    def answer(self) -> Answer:
        """The function's answer, for which this waits.

        Raises its error, and `WorkerCrashed` if the node or its worker was lost.
        """
        try:
            answer: bytes
            failure: bytes
            answer, failure, self.files = self._ray.get(self.ref)
        except self._ray.exceptions.RayError as error:
            lost = f"{self._name}: the worker of Ray was lost\n{first_line(error)}"
            raise WorkerCrashed(lost) from error
        if failure:
            raise msgspec.json.decode(failure, type=ready(ChildFailure)).error()
        return msgspec.json.decode(answer, type=ready(self._kind))

    def close(self) -> None:
        """Cancel it; the child ends with the worker."""
        self._ray.cancel(self.ref, force=True)


class RayCluster:
    """A cluster. The context manager disconnects, and ends a cluster that was started here.

    `cores`: how many its nodes have.
    """

    def __init__(self, address: str, cores: int | None = None) -> None:
        """Connect to an address, or start a cluster of `cores`, None: as many as the machine has.

        Raises `ToolFailed`, and `UsageError` without a token.
        """
        self.ray = imported_ray()
        refuse_without_token(address)
        on_sigterm = signal.getsignal(signal.SIGTERM)
        self._start(address, cores)
        if threading.current_thread() is threading.main_thread():
            # Ray has set its own, which ends this process with another code.
            signal.signal(signal.SIGTERM, on_sigterm)
        # One for all tasks: Ray exports and schedules each remote function separately.
        self.in_worker = self.ray.remote(run_remotely)
        self.cores = int(self.ray.cluster_resources().get("CPU", 1))

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.ray.shutdown()

    def nodes(self) -> dict[str, int]:
        """The cores of each node that is alive, by Ray's id of it, in one order."""
        alive = {node["NodeID"]: node["Resources"] for node in self.ray.nodes() if node["Alive"]}
        return {node: int(alive[node].get("CPU", 0)) for node in sorted(alive)}

    def submit(
        self,
        function: Callable[[Any], Answer],
        job: msgspec.Struct,
        *,
        name: str,
        access: Access,
        allowance: Allowance,
        cores: float = 1,
        node: str = "",
        sent: Mapping[str, Any] = MappingProxyType({}),
    ) -> RemoteTask[Answer]:
        """Run `function(job)` in a supervised child of a node that has these cores free.

        `node` is the id of a node, "" for any; where it is lost before or while the function runs,
        so is the function. `sent` has the content of files as bytes in Ray's object store, by their
        paths in `sent_directory()`. As in `start_task`, `function` is at module level, and the job
        and the answer are JSON. The node confines its child as this process must confine its own.
        """
        remote = self.in_worker.options(**_placed(node), num_cpus=cores, max_retries=0)
        reference = f"{function.__module__}:{function.__qualname__}"
        content = msgspec.json.encode(job)
        mode = sandbox_mode()
        ref = remote.remote(
            reference, content, name, access, allowance, mode, [*sent], *sent.values()
        )
        return RemoteTask(name, ref, self.ray, answer_type(function))

    def wait(self, tasks: Sequence[RemoteTask[Any]]) -> None:
        """Block until some of them have ended, and note which in all of them.

        Ray is called twice for any number of tasks: a client's call is a round trip.
        """
        refs = [task.ref for task in tasks]
        poll_until(lambda: bool(self.ray.wait(refs, timeout=_WAIT_S)[0]))
        ended = set(self.ray.wait(refs, num_returns=len(refs), timeout=0)[0])
        for task in tasks:
            task.was_over = task.ref in ended

    def _start(self, address: str, cores: int | None) -> None:
        own: dict[str, Any] = {}
        if address == "local":
            from ray._common.usage.usage_lib import set_usage_stats_enabled_via_env_var

            # Without this, a cluster reports what it is used for to its makers.
            set_usage_stats_enabled_via_env_var(False)
            own = {"num_cpus": cores or usable_cores(), "include_dashboard": False}
        try:
            self.ray.init(address, log_to_driver=False, logging_level="ERROR", **own)
        except Exception as error:
            # Ray raises Exception itself where its processes do not start in time.
            raise ToolFailed(
                f"Ray does not answer at {address}: {first_line(error)}",
                hint="`ray status` on that machine says whether the cluster is running"
                if address != "local"
                else "it may need more time or memory than this machine has now: try again",
            ) from error


def _placed(node: str) -> dict[str, Any]:
    """The options of a task that is for a node with this id; "" is for any."""
    if not node:
        return {}
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def run_remotely(
    reference: str,
    job: bytes,
    name: str,
    access: Access,
    allowance: Allowance,
    mode: SandboxMode,
    paths: Sequence[str] = (),
    *contents: bytes,
) -> tuple[bytes, bytes, dict[str, bytes]]:
    """In a worker of Ray: run a function in a supervised child, confined as `mode` says.

    `contents` belong to the files that are sent, with their `paths`. Returns the answer, the
    failure (b"" for none), and the files of `returned_directory()`. Job, answer and failure are
    JSON.
    """
    module, function_name = reference.split(":")
    function = getattr(importlib.import_module(module), function_name)
    content: msgspec.Struct = msgspec.json.decode(job, type=ready(job_type(function)))
    files: dict[str, bytes] = {}
    try:
        with using(mode), scratch_directory() as scratch:
            for path, sent in zip(paths, contents, strict=True):
                file = scratch / _SENT / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(sent)
            try:
                with start_task(
                    function,
                    content,
                    label=name,
                    scratch=scratch,
                    access=access,
                    allowance=allowance,
                ) as task:
                    return msgspec.json.encode(task.result()), b"", files
            finally:
                files |= _contents(scratch / _RETURNED)
    except EdgeconvError as error:
        return b"", msgspec.json.encode(ChildFailure.of(error)), files


def sent_directory() -> Path:
    """Called in a task: where the files are that were sent with it."""
    return task_directory().parent / _SENT


def returned_directory() -> Path:
    """Called in a task: the files that it leaves there go back, also where it fails."""
    return task_directory().parent / _RETURNED


def _contents(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def imported_ray() -> Any:
    """The package. Raises `UsageError` if it is not installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(
            f"a cluster needs Ray: {error}", hint="pip install 'edgeconv[ray]'"
        ) from error
    return ray


def refuse_without_token(address: str) -> None:
    """Raise `UsageError` for a cluster that takes jobs from anybody who reaches it.

    A cluster that Ray starts here listens on all of the machine's addresses, by default for those
    who have the token; one on the loopback address is the user's own business.
    """
    mode = os.environ.get(_MODE, "").lower()
    match = _ADDRESS.fullmatch(address)
    if match and _is_loopback(match[1].strip("[]")):
        return
    if mode == "token" or (address == "local" and not mode):
        return
    raise UsageError(
        f"a cluster without a token runs the code of any client: {_MODE} is not token",
        hint=f"set {_MODE}=token for the cluster and for edgeconv; see docs/security.md",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
