"""The processes of one training, which run and end together."""

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from edgeconv.plugins import member_hosts
from edgeconv.system.processes.failures import NewLines, shown, worth_showing
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import ChildTask, start_task
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import keep_log
from edgeconv.tf.training.member import serve_member
from edgeconv.training.cluster import (
    Cluster,
    Peers,
    from_tf_config,
    host_and_port,
    local_cluster,
    refuse_taken_port,
)
from edgeconv.types import CHECKPOINT_KEPT, CONNECTED, Allowance, Distribution
from edgeconv.types.errors import (
    ClusterLost,
    EdgeconvError,
    InternalError,
    UsageError,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

Answer = TypeVar("Answer")

# How long after a failure the one that may have caused it is awaited.
_MOMENT_S = 1.0
_LOG_LINES_AT_ONCE = 100
# Messages of TensorFlow in a member that has lost another one.
_LOST_OTHERS = re.compile(
    r"unavailable|socket closed|connection (refused|reset)|failed to connect|broken pipe"
    r"|aborted|cancelled|unhealthy",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ClusterMember(Generic[Answer]):
    """A process to start: it runs `function(job)`, as this member of `cluster`, or alone."""

    function: Callable[[Any], Answer]
    job: msgspec.Struct
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Member(Generic[Answer]):
    """A running process of a training. One that `serves` runs until it is ended.

    Once the chief has answered, everything is kept.
    """

    name: str
    task: ChildTask[Answer]
    serves: bool = False
    is_chief: bool = False


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """How the processes of a training run; a process without a cluster is called `label`.

    `on`: the cluster of Ray whose nodes they run on, None: this machine. `on_checkpoint` is called
    after each checkpoint.
    """

    label: str
    scratch: Path
    access: Access
    allowance: Allowance = Allowance()
    environment: Mapping[str, str] = field(default_factory=dict)
    connect_timeout_s: float = 300.0
    on_progress: Callable[[str], None] = lambda _: None
    on_checkpoint: Callable[[], None] = lambda: None
    on: str | None = None


def run_cluster(
    starts: Sequence[ClusterMember[Answer]], settings: ProcessSettings
) -> dict[str, Answer]:
    """Start all at once, each in a child with its TF_CONFIG; their results, by member name.

    Reports and output of members of a cluster are passed on as they come, after the name; of a
    single process without a cluster, only its reports. Until all have reported `CONNECTED`, the
    members that they need are looked for, also those on other machines.

    Raises as `run_together`, `UsageError` where a member's port is taken, and `ToolFailed` where
    members do not answer within the timeout.
    """
    clusters = [start.cluster for start in starts if start.cluster]
    for cluster in clusters:
        refuse_taken_port(cluster)
    with ExitStack() as stack:
        members = []
        for start in starts:
            member = start_member(start, settings)
            stack.callback(member.task.close)
            members.append(member)
        sought = {name: address for each in clusters for name, address in each.peers.items()}
        peers = None
        if sought:
            peers = Peers(sought, settings.connect_timeout_s, scratch=settings.scratch)
        if not clusters:
            (alone,) = members
            return {alone.name: _alone(alone, settings.on_progress)}
        return run_together(members, settings.on_progress, peers, settings.on_checkpoint)


def run_together(
    members: Sequence[Member[Answer]],
    on_progress: Callable[[str], None] = lambda _: None,
    peers: Peers | None = None,
    on_checkpoint: Callable[[], None] = lambda: None,
) -> dict[str, Answer]:
    """The results of all members that do not serve, by name, in the order of `members`.

    Those that serve are ended then; where all serve, they are awaited. As soon as one fails, the
    others are ended, and its error is raised with its name, unless the chief answers. Of several
    that fail within a moment, it is the error of the one that did not only miss the others. No
    child is left in any case.
    """
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.task.close)
        if peers:
            stack.callback(peers.close)
        running = _RunningMembers(members, on_progress, peers, on_checkpoint)
        poll_until(running.is_over, running.pass_on)
        running.pass_on()
        if running.failures and not running.has_chief_answered():
            cause = min(running.failures, key=_likely_a_consequence)
            raise _named(cause) from cause.error
        names = [member.name for member in members]
        return {name: running.answers[name] for name in names if name in running.answers}


def _alone(member: Member[Answer], on_progress: Callable[[str], None]) -> Answer:
    def progress(line: str) -> None:
        if line not in (CONNECTED, CHECKPOINT_KEPT):
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
    """The members that run, and the results of those that have ended."""

    def __init__(
        self,
        members: Sequence[Member[Answer]],
        on_progress: Callable[[str], None],
        peers: Peers | None,
        on_checkpoint: Callable[[], None],
    ) -> None:
        self.answers: dict[str, Answer] = {}
        # In the order in which they were seen.
        self.failures: list[_Failed] = []
        self._members, self._left = members, list(members)
        self._logs = {
            member.name: NewLines(member.task.child.log, most=_LOG_LINES_AT_ONCE)
            for member in members
        }
        self._waits_for_servers = all(member.serves for member in members)
        self._on_progress = on_progress
        self._on_checkpoint = on_checkpoint
        self._peers = peers
        self._unconnected = {member.name for member in members if not member.serves}
        self._moment_ends_s = 0.0

    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        for member in [member for member in self._left if member.task.has_ended()]:
            self._settle(member)
        if self.failures:
            return not self._left or time.monotonic() > self._moment_ends_s
        return all(member.serves and not self._waits_for_servers for member in self._left)

    def has_chief_answered(self) -> bool:
        """Whether the chief is one of the members, and has ended well."""
        return any(member.is_chief and member.name in self.answers for member in self._members)

    def pass_on(self) -> None:
        """Pass on what members report and print, until one fails."""
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
            elif line == CHECKPOINT_KEPT:
                self._on_checkpoint()
            else:
                self._on_progress(f"{member.name} | {shown(line)}")

        member.task.relay(progress)
        for line in worth_showing(self._logs[member.name].read()):
            self._on_progress(f"{member.name} | {line}")

    def _settle(self, member: Member[Answer]) -> None:
        """Take the result of a member that has ended, and end what it left running."""
        member.task.close()
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
    """How likely a failure is only the consequence of another: 0 is the least."""
    child, error = failed.member.task.child, failed.error
    if isinstance(error, WorkerTimedOut):
        # All have the same timeout, and members that serve only wait.
        return 2 if failed.member.serves else 0
    if isinstance(error, WorkerOutOfMemory):
        return 0
    # TensorFlow aborts where it lacks other members; other signals have another cause.
    if child.ending_signal and child.ending_signal != signal.SIGABRT:
        return 0
    crashed = isinstance(error, (WorkerCrashed, InternalError))
    if isinstance(error, ClusterLost) or (crashed and _LOST_OTHERS.search(child.tail())):
        return 3
    return 0 if child.ending_signal else 1


def _named(failed: _Failed) -> EdgeconvError:
    name, message = failed.member.name, failed.error.message
    # These messages contain the name.
    is_named = isinstance(failed.error, (WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut))
    named = message if is_named else f"{name}: {message}"
    return _with_log(failed.error, named, failed.member)


def _with_log(error: EdgeconvError, message: str, member: Member[Any]) -> EdgeconvError:
    """The error with this message, and the path of the member's log."""
    if isinstance(error, InternalError):
        return error.with_message(message)
    kept = keep_log(member.task.child.log, f"{member.name.replace(' ', '-')}-{os.getpid()}")
    if kept is not None:
        message += f"\n  the whole log: {kept}"
    return error.with_message(message)


def start_member(start: ClusterMember[Answer], settings: ProcessSettings) -> Member[Answer]:
    """Start a member in a child of this process, with its TF_CONFIG."""
    cluster = start.cluster
    name = cluster.member_name if cluster else settings.label
    # An empty one tells a process that it is alone; the environment may have another.
    own = _environment(cluster) if cluster else {"TF_CONFIG": "{}"}
    task = start_task(
        start.function,
        start.job,
        label=name,
        scratch=settings.scratch,
        access=settings.access,
        allowance=settings.allowance,
        environment={**settings.environment, **own},
    )
    serves, is_chief = (cluster.serves, cluster.is_chief) if cluster else (False, True)
    return Member(name, task, serves=serves, is_chief=is_chief)


def _environment(cluster: Cluster) -> dict[str, str]:
    """TF_CONFIG, and no proxy between members, through which TensorFlow waits without end."""
    # gRPC reads the names in lower case.
    own = filter(None, map(os.environ.get, ("no_grpc_proxy", "no_proxy")))
    hosts = dict.fromkeys(host_and_port(address)[0] for address in cluster.members.values())
    direct = ",".join([*itertools.islice(own, 1), *hosts])
    return {"TF_CONFIG": cluster.tf_config(), "no_grpc_proxy": direct}


# Starting the processes of a distribution: one, a member of a cluster, or a whole cluster.


_TF_CONFIG = "TF_CONFIG"
_SECOND_GPU = Path("/dev/nvidia1")
_RESUMES = "run the same command again: the training resumes from its last checkpoint"
# An exception would be raised again.
_CORRECTED = (
    "correct what the last lines say; then run the command again, which resumes the training from "
    "its last checkpoint"
)


def clusters_of(distribution: Distribution) -> tuple[Cluster, ...]:
    """The clusters as the processes to start here see them; () where one trains alone.

    Raises `UsageError` where the strategy needs a TF_CONFIG and there is none, for one that is
    malformed or not for this strategy, and for one in addition to `workers`.
    """
    strategy, workers = distribution.strategy, distribution.workers
    tf_config = os.environ.get(_TF_CONFIG, "").strip()
    # An empty one tells a process that it is alone.
    tf_config = "" if tf_config == "{}" else tf_config
    if strategy not in ("multiworker", "parameter-server"):
        if tf_config:
            from_tf_config(tf_config).for_strategy(strategy)
        return ()
    if workers and tf_config:
        raise UsageError(
            f"--workers {workers} starts a cluster here, but TF_CONFIG names another one",
            hint="remove --workers, or unset TF_CONFIG",
        )
    if workers:
        coordinated = strategy == "parameter-server"
        servers = distribution.servers or int(coordinated)
        return local_cluster(workers, servers, coordinator=coordinated)
    if not tf_config:
        raise UsageError(
            f"--strategy {strategy} needs a cluster, and there is no TF_CONFIG",
            hint="add --workers 2 to start one on this machine, or set TF_CONFIG for each member",
        )
    return (from_tf_config(tf_config).for_strategy(strategy),)


def is_chief(clusters: tuple[Cluster, ...]) -> bool:
    """Whether one of the processes to start here keeps checkpoints and exports."""
    return not clusters or any(cluster.is_chief for cluster in clusters)


def workers_of(clusters: tuple[Cluster, ...]) -> int:
    """How many processes train."""
    if not clusters:
        return 1
    trains_itself = clusters[0].size("ps") == 0
    return clusters[0].size("worker") + (clusters[0].size("chief") if trains_itself else 0)


def launch(
    clusters: tuple[Cluster, ...],
    train: Callable[[Any], Answer],
    job: Callable[[bool], msgspec.Struct],
    distribution: Distribution,
    settings: ProcessSettings,
    *,
    resumes: bool = True,
) -> Answer | None:
    """Run `train` in each process that does not only serve a coordinator; the chief's result.

    `job` returns the job of a member, by whether it is the chief. None where the chief is not
    among the processes started here. Raises as `run_cluster`; where a training `resumes`, its
    progress or error says so.
    With `settings.on`, the members run on the nodes of Ray.
    """
    starts: list[ClusterMember[Any]] = [
        ClusterMember(serve_member if cluster.serves else train, job(cluster.is_chief), cluster)
        for cluster in clusters
    ] or [ClusterMember(train, job(True))]
    access = _widened(settings.access, clusters, distribution)
    settings = replace(settings, access=access, connect_timeout_s=distribution.connect_timeout_s)
    try:
        run = run_cluster if settings.on is None else member_hosts().run_on_ray
        results: dict[str, Answer] = run(starts, settings)
    except KeyboardInterrupt:
        if resumes:
            settings.on_progress(_RESUMES)
        raise
    except (WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut) as error:
        if not resumes:
            raise
        if error.cause.status > 0:
            raise type(error)(error.message, hint=_CORRECTED, cause=error.cause) from error
        # The limit comes first, since the training would meet it again.
        limit = "" if isinstance(error, WorkerCrashed) else error.hint
        hint = f"{limit}; then {_RESUMES}" if limit else _RESUMES
        raise type(error)(error.message, hint=hint) from error
    if not clusters:
        return results[settings.label]
    chief = next((cluster.member_name for cluster in clusters if cluster.is_chief), None)
    return None if chief is None else results[chief]


def _widened(access: Access, clusters: tuple[Cluster, ...], distribution: Distribution) -> Access:
    """`access` with a network, where processes of this training talk to others.

    NCCL uses sockets, also from GPU to GPU within one process.
    """
    talks = bool(clusters) or distribution.strategy == "tpu" or _SECOND_GPU.exists()
    if talks and access.profile == "training":
        return msgspec.structs.replace(access, profile="cluster")
    return access
