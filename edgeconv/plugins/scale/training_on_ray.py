"""The members of a training on the nodes of Ray, and trainings that go on after a lost one."""

from __future__ import annotations

import contextlib
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeconv.plugins.scale.cluster import RayCluster, parse_address
from edgeconv.system.processes.failures import ChildFailure, tail
from edgeconv.system.processes.sandbox import sandbox_mode, using
from edgeconv.system.processes.tasks import ANSWER_FILES, PROGRESS, ChildTask, answer_type
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import scratch_directory
from edgeconv.training.cluster import Cluster, Peers, held_port, moved, refuse_taken_port
from edgeconv.training.members import (
    ClusterMember,
    Member,
    ProcessSettings,
    run_together,
    start_member,
)
from edgeconv.types import CONNECTED, Distribution
from edgeconv.types.errors import (
    ClusterLost,
    EdgeconvError,
    ToolFailed,
    UsageError,
    WorkerCrashed,
    WorkerKilled,
)
from edgeconv.types.execution import SandboxMode, usable_cores
from edgeconv.types.words import first_line

Answer = TypeVar("Answer")

# Without a checkpoint in between.
MOST_RESTARTS = 3
# For a member that is ended to be gone, before its actor is.
_END_WITHIN_S = 5.0


def refuse_unplaceable(on: str, distribution: Distribution) -> None:
    """Raise `UsageError` for what is not a cluster, and where there are no members to place."""
    parse_address(on)
    if not distribution.workers:
        raise UsageError(
            f"--on {on} places the members of a cluster, but --workers is missing",
            hint="add --strategy multiworker --workers 2, or remove --on",
        )


def run_on_ray(
    starts: Sequence[ClusterMember[Answer]], settings: ProcessSettings
) -> dict[str, Answer]:
    """As `run_cluster`, with each member on a node of the cluster `settings.on`.

    Where one is lost, all start again from the last checkpoint; see `with_restarts`. Raises
    `ToolFailed` where the nodes have no room within the timeout.
    """
    assert settings.on is not None
    settings.on_progress("connecting to Ray")
    # A cluster that is started here has room for all, as processes of this machine have.
    cores = max(len(starts), usable_cores())
    with RayCluster(parse_address(settings.on), cores) as cluster:

        def run(on_checkpoint: Callable[[], None]) -> dict[str, Answer]:
            return _run(starts, replace(settings, on_checkpoint=on_checkpoint), cluster)

        return with_restarts(run, settings.on_progress)


def with_restarts(
    run: Callable[[Callable[[], None]], Answer], on_progress: Callable[[str], None]
) -> Answer:
    """What `run` returns, which is called again where it loses a member.

    It calls its argument after each checkpoint. Raises its error after `MOST_RESTARTS` calls again
    that kept none.
    """
    restarts = 0
    while True:
        kept: list[None] = []
        try:
            return run(lambda kept=kept: kept.append(None))  # type: ignore[misc]
        except (WorkerCrashed, ClusterLost) as error:
            restarts = 1 if kept else restarts + 1
            if restarts > MOST_RESTARTS:
                raise
            on_progress(f"{first_line(error)}; all start again from the last checkpoint")


class RemoteChild:
    """A member's child on another node, a `TaskChild`.

    Its log, and the files that `Task` reads, are copied into `directory`.
    """

    def __init__(self, label: str, actor: Any, directory: Path, ray: Any) -> None:
        self.label, self.log = label, directory / "log.txt"
        self.ending_signal = 0
        self._actor, self._directory, self._ray = actor, directory, ray
        self._failure: EdgeconvError | None = None
        self._has_ended = self._is_gone = False
        self.log.touch()
        self._news = actor.news.remote()

    def has_ended(self) -> bool:
        """Whether the process has ended, or its actor is lost."""
        if self._has_ended:
            return True
        try:
            with _raising(self._ray):
                if self._ray.wait([self._news], timeout=0)[0]:
                    self._take(self._ray.get(self._news))
        except EdgeconvError as error:
            self._has_ended, self._failure = True, self._lost(error)
        return self._has_ended

    def _take(self, news: News) -> None:
        for path, new in ((self.log, news.log), (self._directory / PROGRESS, news.progress)):
            with path.open("ab") as file:
                file.write(new)
        if news.ending is None:
            self._news = self._actor.news.remote()
            return
        for name, content in news.ending.files.items():
            (self._directory / name).write_bytes(content)
        self._has_ended, self.ending_signal = True, news.ending.signal
        if news.ending.failure is not None:
            self._failure = news.ending.failure.error()

    def _lost(self, error: EdgeconvError) -> EdgeconvError:
        message = f"{self.label}: {error.message}\n{self.tail()}".rstrip()
        if isinstance(error, WorkerKilled):
            self.ending_signal = signal.SIGKILL
        return type(error)(message, hint=error.hint)

    def kill(self) -> None:
        """End the process and its actor, once."""
        if self._is_gone:
            return
        self._is_gone = True
        with contextlib.suppress(EdgeconvError), _raising(self._ray):
            self._ray.get(self._actor.end.remote(), timeout=_END_WITHIN_S)
        with contextlib.suppress(EdgeconvError), _raising(self._ray):
            self._ray.kill(self._actor)

    def raise_unless_well(self) -> None:
        """Raise the error of one that has ended, and not well."""
        if self._failure is not None:
            raise self._failure

    def tail(self) -> str:
        """The last lines that it printed."""
        return tail(self.log)


def _run(
    starts: Sequence[ClusterMember[Answer]], settings: ProcessSettings, cluster: RayCluster
) -> dict[str, Answer]:
    views = [start.cluster for start in starts if start.cluster]
    with _actors(cluster, len(starts)) as actors:
        reserved = [actor.reserve.remote() for actor in actors]
        addresses = _placed(cluster, reserved, settings.connect_timeout_s)
        views = [*moved(views, addresses)]
        named = (f"{view.member_name} at {view.address}" for view in views)
        settings.on_progress(f"placed: {', '.join(named)}")
        for_nodes = replace(settings, on_progress=lambda _: None, on_checkpoint=lambda: None)
        refs = [
            actor.start.remote(replace(start, cluster=view), for_nodes, sandbox_mode())
            for actor, start, view in zip(actors, starts, views, strict=True)
        ]
        for ref, view in zip(refs, views, strict=True):
            _refuse_failed(_get(cluster.ray, ref), view.member_name)
        with contextlib.ExitStack() as stack:
            members = []
            for actor, start, view in zip(actors, starts, views, strict=True):
                members.append(_member(actor, start, view, settings.scratch, cluster.ray))
                stack.callback(members[-1].task.close)
            return run_together(members, settings.on_progress, on_checkpoint=settings.on_checkpoint)


def _member(
    actor: Any, start: ClusterMember[Answer], view: Cluster, scratch: Path, ray: Any
) -> Member[Answer]:
    directory = Path(tempfile.mkdtemp(prefix="member-", dir=scratch))
    child = RemoteChild(view.member_name, actor, directory, ray)
    task = ChildTask(child, directory, answer_type(start.function))
    return Member(view.member_name, task, serves=view.serves, is_chief=view.is_chief)


@contextlib.contextmanager
def _actors(cluster: RayCluster, count: int) -> Iterator[list[Any]]:
    """Actors with a core each, on different nodes where there are; all of them get one, or none."""
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    with _raising(cluster.ray):
        group = placement_group([{"CPU": 1}] * count, strategy="SPREAD")
        kind = cluster.ray.remote(num_cpus=1, max_restarts=0)(MemberHost)
    try:
        yield [
            kind.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                )
            ).remote()
            for index in range(count)
        ]
    finally:
        # It ends the actors.
        with contextlib.suppress(EdgeconvError), _raising(cluster.ray):
            remove_placement_group(group)


def _placed(cluster: RayCluster, reserved: list[Any], timeout_s: float) -> list[str]:
    """The addresses that the actors reserved."""
    until_s = time.monotonic() + timeout_s
    count = len(reserved)

    def is_over() -> bool:
        ready, _ = cluster.ray.wait(reserved, num_returns=count, timeout=0)
        return len(ready) == count or time.monotonic() > until_s

    poll_until(is_over)
    if len(cluster.ray.wait(reserved, num_returns=count, timeout=0)[0]) < count:
        raise ToolFailed(
            f"Ray had no room for {count} members within {timeout_s:g} s",
            hint=f"each takes a core, and the cluster has {cluster.cores}; `ray status` on "
            "the cluster shows what is free; --connect-timeout-s sets how long to wait",
        )
    return [_refuse_failed(_get(cluster.ray, ref), "a member") for ref in reserved]


def _refuse_failed(answer: Any, name: str) -> Any:
    """An answer of an actor. Raises the failure that it is."""
    if isinstance(answer, ChildFailure):
        error = answer.error()
        raise type(error)(f"{name}: {error.message}", hint=error.hint)
    return answer


def _get(ray: Any, ref: Any) -> Any:
    with _raising(ray):
        return ray.get(ref)


@contextlib.contextmanager
def _raising(ray: Any) -> Iterator[None]:
    """Raise `WorkerKilled` for an actor or a cluster that is lost, `ToolFailed` for its errors."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise ToolFailed(f"an actor of Ray failed: {first_line(error.cause)}") from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerKilled(f"its worker of Ray was lost: {first_line(error)}") from error


# On a node: a member in a supervised child of an actor, handed over in parts.

# How long a call waits for news.
_WAIT_S = 0.25
_MOST_BYTES = 2**20


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended: why not well, the signal or 0, and the files of its answer by name."""

    failure: ChildFailure | None
    signal: int
    files: dict[str, bytes]


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What a child has printed (`log`) and reported since the last news; its end, after all."""

    log: bytes
    progress: bytes
    ending: Ending | None = None


class MemberHost:
    """The actor. First it reserves a port, then it starts its member; `news` is called on and on.

    Where the actor is ended, its child ends too.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._held: socket.socket | None = None
        self._failure: ChildFailure | None = None

    def reserve(self) -> str | ChildFailure:
        """Hold a port of this node; "host:port" as the other nodes reach it."""
        from ray.util import get_node_ip_address

        try:
            self._held = self._stack.enter_context(held_port())
        except EdgeconvError as error:
            return ChildFailure.of(error)
        host = str(get_node_ip_address())
        return f"{f'[{host}]' if ':' in host else host}:{self._held.getsockname()[1]}"

    def start(
        self, start: ClusterMember[Any], settings: ProcessSettings, mode: SandboxMode
    ) -> ChildFailure | None:
        """Start the member on the reserved port; why it could not be."""
        assert self._held is not None
        assert start.cluster is not None
        self._held.close()
        try:
            refuse_taken_port(start.cluster)
            self._stack.enter_context(using(mode))
            scratch = self._stack.enter_context(scratch_directory())
            self._member: Member[Any] = start_member(start, replace(settings, scratch=scratch))
        except EdgeconvError as error:
            return ChildFailure.of(error)
        task = self._member.task
        self._log = _Growing(task.child.log)
        self._reports = _Growing(task.directory / PROGRESS)
        self._peers: Peers | None = None
        if peers := start.cluster.peers:
            self._peers = Peers(peers, settings.connect_timeout_s, scratch=scratch)
        return None

    def news(self) -> News:
        """What is new, for which this waits a moment; the member's allowance is enforced."""
        child, until_s = self._member.task.child, time.monotonic() + _WAIT_S
        poll_until(lambda: child.has_ended() or self._has_new() or time.monotonic() > until_s)
        has_ended = child.has_ended()
        if has_ended:
            # With what it left running.
            child.kill()
        log, progress = self._log.read(), self._reports.read()
        self._look_for_peers(progress)
        is_all = has_ended and not log and not progress
        return News(log=log, progress=progress, ending=self._ending() if is_all else None)

    def end(self) -> None:
        """End the member, and remove its files."""
        if hasattr(self, "_member"):
            self._member.task.close()
            self._close_peers()
        self._stack.close()

    def _has_new(self) -> bool:
        return self._log.has_new() or self._reports.has_new()

    def _look_for_peers(self, progress: bytes) -> None:
        """Until the member is connected, which it reports first, look for those that it needs."""
        if self._peers is None:
            return
        if CONNECTED.encode() in progress:
            self._close_peers()
            return
        try:
            self._peers.look()
        except EdgeconvError as error:
            self._failure = ChildFailure.of(error)
            self._member.task.close()
            self._close_peers()

    def _close_peers(self) -> None:
        if self._peers is not None:
            self._peers.close()
            self._peers = None

    def _ending(self) -> Ending:
        child, directory = self._member.task.child, self._member.task.directory
        failure = self._failure
        self._close_peers()
        if failure is None:
            try:
                child.raise_unless_well()
            except EdgeconvError as error:
                failure = ChildFailure.of(error)
        paths = [directory / name for name in ANSWER_FILES]
        files = {path.name: path.read_bytes() for path in paths if path.is_file()}
        return Ending(failure=failure, signal=child.ending_signal, files=files)


class _Growing:
    """A file that is read while it grows; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0

    def has_new(self) -> bool:
        return self._path.exists() and self._path.stat().st_size > self._read_bytes

    def read(self) -> bytes:
        if not self.has_new():
            return b""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read(_MOST_BYTES)
        self._read_bytes += len(new)
        return new
