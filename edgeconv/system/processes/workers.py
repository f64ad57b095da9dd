"""Supervised child processes: timeout, memory limit, crash turned into a typed error.

TensorFlow, the quantizer and every runtime run in a child, because each can abort its process.
`Child` runs any command under supervision, `system.processes.tasks` functions of this package;
`runtimes.conversation` exchanges messages with a child.

No child outlives its parent. Each leads a session, which the parent kills as a whole on any
exception, Ctrl-C included. Where the parent is killed, a pipe to the child closes, at which the
kernel (on Linux) ends the session. prctl's PR_SET_PDEATHSIG does not do: it leaves the
grandchildren of a killed parent, and kills a child whose starting thread has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol, TypeVar

from edgeconv.system.processes.failures import fault_of, no_room, tail
from edgeconv.system.processes.sandbox import Access, start_command
from edgeconv.system.processes.signals import raise_interrupt
from edgeconv.types import Allowance
from edgeconv.types.errors import (
    Cause,
    EdgeconvError,
    ToolFailed,
    WorkerCrashed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)


class Closable(Protocol):
    """A running child, or what has one."""

    def close(self) -> None:
        """End the process."""


Running = TypeVar("Running", bound=Closable)

# What ends at once is noticed at once: the first polls are closer together.
_POLL_S = 0.01
_FIRST_POLL_S = 0.0005
_POLLS_PER_CHECK = 5
_LOST_AFTER_S = 1.0
_KILLED = (
    "run the same command again; if the system killed it because memory ran out, free some first "
    "or give fewer samples"
)
# A program waits for a line, which comes once it is tied to its parent: else a parent that is
# killed in between would leave it running.
_WAIT_FOR_A_LINE = ("/bin/sh", "-c", 'ulimit -c 0; read -r _ && exec "$@"', "sh")


_running: set[Child] = set()


class Child:
    """A command that runs under supervision. `wait` returns once it ended well, or raises why not.

    A context manager: leaving it ends the process, with all that it started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        label: str,
        cwd: Path,
        access: Access,
        allowance: Allowance = Allowance(),
        environment: Mapping[str, str] | None = None,
        talks: bool = False,
        shares: tuple[int, ...] = (),
    ) -> None:
        """Start it in `cwd`, its own scratch directory, where its log is kept as log.txt.

        `access` says what else it may touch. One that `talks` has its stdout in a pipe and not in
        the log; see `pipes`. It inherits the open files `shares`.
        """
        self.label = label
        self.log = cwd / "log.txt"
        self.allowance = allowance
        self._started_s = time.monotonic()
        self._unseen_since_s = 0.0
        self._stopped_for: EdgeconvError | None = None
        self._start = start_command(command, cwd=cwd, access=access, environment=environment or {})
        theirs, ours = os.pipe()
        self._tether = os.fdopen(ours, "wb")
        try:
            with os.fdopen(theirs) as end, self.log.open("w+b") as log:
                self._process = subprocess.Popen(
                    [*_WAIT_FOR_A_LINE, *self._start.command],
                    cwd=cwd,
                    env=self._start.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if talks else log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[end.fileno(), *shares],
                    bufsize=0,
                )
                _end_session_when_closed(end.fileno(), self._process.pid)
        except OSError:
            self._tether.close()
            raise
        _running.add(self)
        # It is tied to this process now, and may begin.
        self.tell("")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, line: str) -> None:
        """Write a line to its stdin; nothing happens where it has ended."""
        assert self._process.stdin is not None
        # `ValueError`: `kill` has closed it.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n".encode())

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """The stdin and the stdout, unbuffered, of a child that talks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def renew(self) -> None:
        """Count its time from now on."""
        self._started_s = time.monotonic()

    def rest(self) -> None:
        """Count no time outside of `waited_for` blocks from now on."""
        self._started_s = math.inf

    @contextlib.contextmanager
    def waited_for(self) -> Iterator[None]:
        """Count its time, from zero, in this block only."""
        self.renew()
        try:
            yield
        finally:
            self.rest()

    def check(self) -> None:
        """Enforce every child's allowance; raise where this one has ended with an error."""
        _enforce_allowances()
        if self.has_ended():
            self.kill()
            self.raise_unless_well()

    def has_ended(self) -> bool:
        """Whether the process has ended; its exit code is known then.

        It asks the system directly: a lock of the standard library stays locked for ever where an
        interrupt comes at the wrong moment.
        """
        if self._process.returncode is None:
            try:
                pid, status = os.waitpid(self._process.pid, os.WNOHANG)
            except ChildProcessError:
                # Another thread saw the end, and sets the code soon or was interrupted.
                self._unseen_since_s = self._unseen_since_s or time.monotonic()
                if time.monotonic() - self._unseen_since_s > _LOST_AFTER_S:
                    self._process.returncode = -signal.SIGKILL
            else:
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._process.returncode = self._start.own_code(code)
        return self._process.returncode is not None

    def kill(self) -> None:
        """End the process and its whole session, once."""
        # The number of an ended process may belong to another one.
        if self not in _running:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while not self.has_ended():
            time.sleep(_POLL_S / 10)
        _running.discard(self)
        self._tether.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self, within_s: float) -> None:
        """Ask the process to end, and `kill` what is left of its session then."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self in _running and not self.has_ended():
                os.kill(self._process.pid, signal.SIGTERM)
        until_s = time.monotonic() + within_s
        while not self.has_ended() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        self.kill()

    @property
    def ending_signal(self) -> int:
        """The signal that ended the process; 0 for none, or one that runs."""
        return -min(self._process.returncode or 0, 0)

    def tail(self) -> str:
        """The last lines the child printed, for an error message."""
        return tail(self.log)

    def wait(self, on_poll: Callable[[], None] = lambda: None) -> None:
        """Block until the child ended with exit code 0.

        Raises `WorkerTimedOut`, `WorkerOutOfMemory` or `WorkerCrashed`, with the last lines of its
        log, and `KeyboardInterrupt` where that was lost before; the process is gone in every case.
        """
        try:
            poll_until(self.has_ended, on_poll)
        finally:
            self.kill()
        on_poll()
        self.raise_unless_well()

    def raise_unless_well(self) -> None:
        """Raise as `wait` does where the child ended with an exit code other than 0."""
        if self._stopped_for is not None:
            raise self._stopped_for
        self._start.raise_or_warn()
        code = self._process.returncode
        # Python may end by a signal where not even its last words find room.
        if code and code != -signal.SIGKILL:
            directory = self.log.parent
            self._stopped_for = fault_of(self.label, directory) or no_room(self.label, directory)
            if self._stopped_for is not None:
                raise self._stopped_for
        if code:
            message = f"{self.label} {_how_it_ended(code)}\n{self.tail()}".rstrip()
            if code == -signal.SIGKILL:
                raise WorkerKilled(message, hint=_KILLED)
            is_bare = sys.platform == "linux" and not Path("/proc/self").exists()
            hint = "mount /proc, which TensorFlow needs" if is_bare else ""
            raise WorkerCrashed(message, hint=hint, cause=Cause(status=code))

    def _enforce_allowance(self) -> None:
        if self.has_ended():
            return
        timeout_s, memory_bytes = self.allowance.timeout_s, self.allowance.memory_bytes
        if time.monotonic() - self._started_s > timeout_s:
            self._stop_for(
                WorkerTimedOut,
                f"did not end within {timeout_s:g} s",
                hint="raise --timeout-s if the model is that large",
            )
        elif memory_bytes and resident_bytes(self._process.pid) > memory_bytes:
            self._stop_for(
                WorkerOutOfMemory,
                f"used more than {memory_bytes / 2**20:.0f} MiB",
                hint="raise --memory-limit-mib, or give fewer or smaller samples",
            )

    def _stop_for(self, error: type[ToolFailed], why: str, *, hint: str) -> None:
        # Before the end, which another thread may see.
        self._stopped_for = error(f"{self.label} {why}", hint=hint)
        self.kill()
        # Not while it runs: it may just be emptying its log.
        self._stopped_for = error(f"{self.label} {why}\n{self.tail()}".rstrip(), hint=hint)


def start_ahead(starts: Iterable[Callable[[], Running]], *, width: int = 2) -> Iterator[Running]:
    """Start children, at most `width` at a time, and yield them in order, each to be waited for.

    The caller gets the next after it is done with one. Where it stops early, the others are ended.
    """
    started: deque[Running] = deque()
    pending = iter(starts)
    try:
        for start in pending:
            started.append(start())
            if len(started) == width:
                yield started[0]
                started.popleft().close()
        while started:
            yield started[0]
            started.popleft().close()
    finally:
        for running in started:
            running.close()


def poll_until(is_over: Callable[[], bool], on_poll: Callable[[], None] = lambda: None) -> None:
    """Block until `is_over()`, which is called often; `on_poll` is called less often.

    Meanwhile every child's allowance is enforced. Raises `KeyboardInterrupt` where that was lost.
    """
    for poll in itertools.count():
        raise_interrupt()
        if is_over():
            return
        if poll % _POLLS_PER_CHECK == 0:
            on_poll()
            _enforce_allowances()
        time.sleep(min(_POLL_S, _FIRST_POLL_S * (poll + 1)))


def _enforce_allowances() -> None:
    for child in tuple(_running):
        child._enforce_allowance()


def run_program(
    command: Sequence[str],
    *,
    label: str,
    cwd: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, ToolFailed | None]:
    """Run a program of the user's machine; what it printed, and the error that it ended with."""
    with Child(
        command,
        label=label,
        cwd=cwd,
        access=Access(profile="programs"),
        allowance=Allowance(timeout_s=timeout_s),
        environment=environment,
    ) as child:
        failure = None
        try:
            child.wait()
        except ToolFailed as error:
            failure = error
        return child.log.read_text(encoding="utf-8", errors="replace"), failure


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants, in bytes; 0 once it has gone.

    Of the process alone where /proc has only processes, which psutil does not take.
    """
    import psutil

    total = 0
    with contextlib.suppress(psutil.NoSuchProcess, OSError):
        try:
            root = psutil.Process(pid)
        except FileNotFoundError:
            pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
            return int(pages) * resource.getpagesize()
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def _end_session_when_closed(pipe: int, session: int) -> None:
    """Have the kernel kill a session, of any program, when the writing end of its pipe closes."""
    if sys.platform == "linux":
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -session)
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
