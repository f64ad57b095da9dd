"""On a node of Ray: one member of a training, in a supervised child of an actor.

What the child prints and reports is handed over in parts, its answer in the end.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.system.processes.failures import ChildFailure
from edgeconv.system.processes.sandbox import using
from edgeconv.system.processes.tasks import ANSWER_FILES, PROGRESS
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import scratch_directory
from edgeconv.training.members import ClusterMember, ProcessSettings, start_member
from edgeconv.training.peers import Peers
from edgeconv.training.ports import held_port, refuse_taken_port
from edgeconv.types import CONNECTED
from edgeconv.types.errors import EdgeconvError

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from edgeconv.training.members import Member
    from edgeconv.types.execution import SandboxMode

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
            self._member.task.child.kill()
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
            self._member.task.child.kill()
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
