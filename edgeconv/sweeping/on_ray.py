"""Jobs on Ray: each task starts the same supervised child, on a node that has a core for it.

Ray's workers import no TensorFlow. They need edgeconv in their environment, and the directory of
the results, the models and the data at the same paths.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import EdgeconvError, ToolFailed, UsageError, WorkerCrashed
from edgeconv.processes.failures import ChildFailure
from edgeconv.processes.workers import poll_until
from edgeconv.store import scratch_directory
from edgeconv.sweeping.executors import LocalExecutor
from edgeconv.sweeping.jobs import SweepJob
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.sweeping.executors import Handle

_ADDRESS = re.compile(r"ray://(\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5})")
_MODE = "RAY_AUTH_MODE"


def parse_address(text: str) -> str:
    """The address of a cluster, "local" for one that is started here. Raises `UsageError`."""
    if text == "ray":
        return "local"
    if not _ADDRESS.fullmatch(text):
        raise UsageError(f"--on {text!r} is not a cluster", hint="ray, or ray://HOST:PORT")
    return text


class RayHandle:
    """A job as a task of Ray."""

    def __init__(self, job: SweepJob, ref: Any, ray: Any) -> None:
        self.job = job
        self._ref, self._ray = ref, ray

    def has_ended(self) -> bool:
        """Whether the task has."""
        return bool(self._ray.wait([self._ref], timeout=0)[0])

    def error(self) -> EdgeconvError | None:
        """How the job failed, or the task."""
        try:
            answer: bytes = self._ray.get(self._ref)
        except self._ray.exceptions.RayError as error:
            return WorkerCrashed(
                f"{self.job.name}: the worker of Ray was lost\n{first_line(error)}"
            )
        return msgspec.json.decode(answer, type=ChildFailure).error() if answer else None

    def close(self) -> None:
        """Cancel the task; its child ends with the worker."""
        self._ray.cancel(self._ref, force=True)


class RayExecutor:
    """Jobs as tasks of a cluster, each with one core. The context manager disconnects."""

    def __init__(self, address: str, jobs: int | None) -> None:
        """Connect, or start a cluster. Raises `ToolFailed`, and `UsageError` without a token."""
        self._ray = _imported()
        _refuse_without_token(address)
        self._start(address, jobs)
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.width = min(jobs or cores, cores)
        self._run: Any = self._ray.remote(num_cpus=1, max_retries=0)(run_encoded)

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def submit(self, job: SweepJob) -> RayHandle:
        """Start a task."""
        return RayHandle(job, self._run.remote(msgspec.json.encode(job)), self._ray)

    def wait(self, handles: Sequence[Handle]) -> None:
        """Block until a task has ended."""
        poll_until(lambda: any(handle.has_ended() for handle in handles))

    def _start(self, address: str, jobs: int | None) -> None:
        own: dict[str, Any] = {}
        if address == "local":
            from ray._common.usage.usage_lib import set_usage_stats_enabled_via_env_var

            # Without this, a cluster reports what it is used for to its makers.
            set_usage_stats_enabled_via_env_var(False)
            own = {"num_cpus": jobs or os.cpu_count() or 1, "include_dashboard": False}
        try:
            self._ray.init(address, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise ToolFailed(
                f"Ray does not answer at {address}: {first_line(error)}",
                hint="`ray status` there says whether the cluster runs",
            ) from error


def run_encoded(encoded: bytes) -> bytes:
    """In a worker of Ray: run a job in a supervised child.

    The job, and the failure that comes back (b"" for none), are JSON.
    """
    job = msgspec.json.decode(encoded, type=SweepJob)
    with scratch_directory() as scratch:
        executor = LocalExecutor(1, scratch)
        handle = executor.submit(job)
        try:
            executor.wait([handle])
            error = handle.error()
        finally:
            handle.close()
    return b"" if error is None else msgspec.json.encode(ChildFailure.of(error))


def _imported() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(
            f"--on ray needs Ray: {error}", hint="pip install 'edgeconv[ray]'"
        ) from error
    return ray


def _refuse_without_token(address: str) -> None:
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
