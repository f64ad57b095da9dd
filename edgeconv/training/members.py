"""Several processes of one training: run together, and ended together."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgeconv.errors import (
    ClusterLost,
    EdgeconvError,
    InternalError,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.processes.logs import NewLines, shown, worth_showing
from edgeconv.processes.tasks import start_task
from edgeconv.processes.workers import poll_until
from edgeconv.store import keep_log
from edgeconv.training.cluster import host_and_port
from edgeconv.training.peers import Peers
from edgeconv.training.ports import refuse_taken_port
from edgeconv.types import CONNECTED, Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import msgspec

    from edgeconv.processes.sandbox import Access
    from edgeconv.processes.tasks import Task
    from edgeconv.training.cluster import Cluster

Answer = TypeVar("Answer")

# How long after a failure one that may have caused it is waited for.
_MOMENT_S = 1.0
_LOG_LINES_AT_ONCE = 100
# What TensorFlow prints in a member that has lost another one.
_LOST_OTHERS = re.compile(
    r"unavailable|socket closed|connection (refused|reset)|failed to connect|broken pipe"
    r"|aborted|cancelled|unhealthy",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ClusterMember(Generic[Answer]):
    """What one process does: `function(job)`, as this member of `cluster`, or alone."""

    function: Callable[[Any], Answer]
    job: msgspec.Struct
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Member(Generic[Answer]):
    """A running process of a training. One that `serves` does so until it is ended."""

    name: str
    task: Task[Answer]
    serves: bool = False


def run_cluster(
    parts: Sequence[ClusterMember[Answer]],
    *,
    label: str,
    scratch: Path,
    access: Access,
    allowance: Allowance = Allowance(),
    environment: Mapping[str, str] | None = None,
    connect_timeout_s: float = 300.0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Answer]:
    """Run all parts at once, each in a child with its TF_CONFIG; their answers, by member name.

    Of parts that are members of a cluster, what they report and print is passed on as it comes,
    after their name; a single part without one is called `label`, and only its reports are
    passed on. Until all have reported `CONNECTED`, the members they need are looked for, the
    ones that run elsewhere too.

    Raises what `run_together` does, `UsageError` where a member's port is taken, and
    `ToolFailed` where members do not answer within `connect_timeout_s`.
    """
    clusters = [part.cluster for part in parts if part.cluster]
    for cluster in clusters:
        refuse_taken_port(cluster)
    with ExitStack() as stack:
        members = []
        for part in parts:
            member = _start(part, label, scratch, access, allowance, environment or {})
            stack.callback(member.task.child.kill)
            members.append(member)
        sought = {name: address for one in clusters for name, address in one.peers.items()}
        peers = Peers(sought, connect_timeout_s, scratch=scratch) if sought else None
        if not clusters:
            (alone,) = members
            return {alone.name: _alone(alone, on_progress)}
        return run_together(members, on_progress, peers)


def run_together(
    members: Sequence[Member[Answer]],
    on_progress: Callable[[str], None] = lambda _: None,
    peers: Peers | None = None,
) -> dict[str, Answer]:
    """The answers of all members that do not serve, by name, in the order of `members`.

    Those that serve are ended then; where all serve, they are waited for. As soon as one fails,
    the others are ended, and its error is raised with its name; of several that fail within a
    moment, the error of the one that did not just miss the others. No child is left, whatever
    happens.
    """
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.task.child.kill)
        if peers:
            stack.callback(peers.close)
        running = _RunningMembers(members, on_progress, peers)
        poll_until(running.is_over, running.pass_on)
        running.pass_on()
        if running.failures:
            cause = min(running.failures, key=_likely_a_consequence)
            raise _named(cause) from cause.error
        names = [member.name for member in members]
        return {name: running.answers[name] for name in names if name in running.answers}


def _alone(member: Member[Answer], on_progress: Callable[[str], None]) -> Answer:
    def progress(line: str) -> None:
        if line != CONNECTED:
            on_progress(line)

    try:
        return member.task.result(progress)
    except EdgeconvError as error:
        raise _with_log(error, error.message, member) from error


@dataclass(frozen=True)
class _Failed:
    member: Member[Any]
    error: EdgeconvError


class _RunningMembers(Generic[Answer]):
    """The members that run, and what came of those that do no longer."""

    def __init__(
        self,
        members: Sequence[Member[Answer]],
        on_progress: Callable[[str], None],
        peers: Peers | None,
    ) -> None:
        self.answers: dict[str, Answer] = {}
        # In the order in which they were seen.
        self.failures: list[_Failed] = []
        self._left = list(members)
        self._logs = {
            member.name: NewLines(member.task.child.log, most=_LOG_LINES_AT_ONCE)
            for member in members
        }
        self._waits_for_servers = all(member.serves for member in members)
        self._on_progress = on_progress
        self._peers = peers
        self._unconnected = {member.name for member in members if not member.serves}
        self._moment_ends_s = 0.0

    def is_over(self) -> bool:
        """Whether there is nothing more to wait for."""
        for member in [one for one in self._left if one.task.child.has_ended()]:
            self._settle(member)
        if self.failures:
            return not self._left or time.monotonic() > self._moment_ends_s
        return all(member.serves and not self._waits_for_servers for member in self._left)

    def pass_on(self) -> None:
        """What members report and print; after a failure no more, since it is about that."""
        if self.failures:
            return
        for member in self._left:
            self._pass_on(member)
        if self._peers and self._unconnected:
            self._peers.look()
        elif self._peers:
            self._peers.close()
            self._peers = None

    def _pass_on(self, member: Member[Answer]) -> None:
        def progress(line: str) -> None:
            if line == CONNECTED:
                self._unconnected.discard(member.name)
            else:
                self._on_progress(f"{member.name} | {shown(line)}")

        member.task.relay(progress)
        for line in worth_showing(self._logs[member.name].read()):
            self._on_progress(f"{member.name} | {line}")

    def _settle(self, member: Member[Answer]) -> None:
        """Take what came of a member that has ended, and end what it left running."""
        member.task.child.kill()
        if not self.failures:
            self._pass_on(member)
        self._left.remove(member)
        self._unconnected.discard(member.name)
        try:
            self.answers[member.name] = member.task.answer()
        except EdgeconvError as error:
            if not self.failures:
                self._moment_ends_s = time.monotonic() + _MOMENT_S
            self.failures.append(_Failed(member, error))


def _likely_a_consequence(failed: _Failed) -> int:
    """How likely a failure is but the consequence of another: 0 is the least."""
    child, error = failed.member.task.child, failed.error
    if isinstance(error, WorkerTimedOut):
        # All have the same time, and those that serve only wait.
        return 2 if failed.member.serves else 0
    if isinstance(error, WorkerOutOfMemory):
        return 0
    # TensorFlow itself aborts for want of others; other signals come from outside or a fault.
    if child.ending_signal and child.ending_signal != signal.SIGABRT:
        return 0
    crashed = isinstance(error, (WorkerCrashed, InternalError))
    if isinstance(error, ClusterLost) or (crashed and _LOST_OTHERS.search(child.tail())):
        return 3
    return 0 if child.ending_signal else 1


def _named(failed: _Failed) -> EdgeconvError:
    name, message = failed.member.name, failed.error.message
    # What the process itself ended with has its name.
    is_named = isinstance(failed.error, (WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut))
    named = message if is_named else f"{name}: {message}"
    return _with_log(failed.error, named, failed.member)


def _with_log(error: EdgeconvError, message: str, member: Member[Any]) -> EdgeconvError:
    """The error with this message, and where to find all that the member printed."""
    if isinstance(error, InternalError):
        return error.with_message(message)
    kept = keep_log(member.task.child.log, f"{member.name.replace(' ', '-')}-{os.getpid()}")
    if kept is not None:
        message += f"\n  the whole log: {kept}"
    return type(error)(message, hint=error.hint)


def _start(
    part: ClusterMember[Answer],
    label: str,
    scratch: Path,
    access: Access,
    allowance: Allowance,
    environment: Mapping[str, str],
) -> Member[Answer]:
    cluster = part.cluster
    name = cluster.member_name if cluster else label
    # An empty one is what says that a process is alone; there may be another outside.
    own = _environment(cluster) if cluster else {"TF_CONFIG": "{}"}
    task = start_task(
        part.function,
        part.job,
        label=name,
        scratch=scratch,
        access=access,
        allowance=allowance,
        environment={**environment, **own},
    )
    return Member(name, task, serves=bool(cluster and cluster.serves))


def _environment(cluster: Cluster) -> dict[str, str]:
    """TF_CONFIG, and no proxy between members: through one TensorFlow waits without end."""
    # gRPC knows them in lower case.
    names = ("no_grpc_proxy", "no_proxy")
    given = next(filter(None, map(os.environ.get, names)), "")
    hosts = dict.fromkeys(host_and_port(address)[0] for address in cluster.members.values())
    direct = ",".join([*filter(None, [given]), *hosts])
    return {"TF_CONFIG": cluster.tf_config(), "no_grpc_proxy": direct}
