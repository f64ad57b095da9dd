"""Supervised child processes: timeout, memory limit, crash turned into a typed error.

TensorFlow, the quantiser and every runtime run in a child, because each can abort
the process it is in. `Child` runs any command under supervision; `edgeconv.processes.tasks` runs
functions of this package so, and `edgeconv.processes.talk` talks with one.

No child outlives its parent. Each is a session of its own, so that it goes with all
that it started; the parent ends it on any exception, Ctrl-C included; and should the
parent be killed, a pipe to the child closes, at which the kernel (on Linux) ends the
session. prctl's PR_SET_PDEATHSIG was tried instead: of a parent that was killed it left the
grandchildren, and it killed a child at once whose starting thread had ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from edgeconv.errors import (
    Cause,
    EdgeconvError,
    WorkerCrashed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.processes.failures import fault_of
from edgeconv.processes.logs import tail
from edgeconv.processes.sandbox import start_command
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from edgeconv.processes.sandbox import Access


class Closes(Protocol):
    """Anything that stands for a running child."""

    def close(self) -> None:
        """End the process."""


Running = TypeVar("Running", bound=Closes)

_POLL_S = 0.01
_POLLS_PER_CHECK = 5
_POLLS_UNTIL_LOST = 100
_KILLED = (
    "run the same command again; if the system killed it for want of memory, free some first "
    "or give fewer samples"
)
# A program does nothing before it is tied to its parent, of which this line tells it: else a
# parent that is killed in between would leave it.
_WAIT_FOR_A_LINE = ("/bin/sh", "-c", 'ulimit -c 0; read -r _ && exec "$@"', "sh")


_running: set[Child] = set()
# Not a threading.Event: its lock could be held by what the signal interrupts.
_interrupted = False


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

        `access` says what else it may touch. One that `talks` has its stdout in a pipe, which is
        not in the log; see `pipes`. It `shares` these open files, by their numbers.
        """
        self.label = label
        self.log = cwd / "log.txt"
        self.allowance = allowance
        self._started_s = time.monotonic()
        self._unseen_polls = 0
        self._stopped_for: EdgeconvError | None = None
        self._start = start_command(command, cwd=cwd, access=access, environment=environment or {})
        theirs, ours = os.pipe()
        self._tether = os.fdopen(ours, "wb")
        try:
            with os.fdopen(theirs) as end, self.log.open("wb") as log:
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
        self._let_go()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _let_go(self) -> None:
        """Let the command begin, now that it is tied to this process."""
        self.tell("")

    def tell(self, line: str) -> None:
        """Write a line to its stdin; nothing happens where it has ended."""
        assert self._process.stdin is not None
        # Of a child that was killed it is closed.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{line}\n".encode())

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """The stdin and the stdout, unbuffered, of a child that talks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def renew(self) -> None:
        """Count its time from now on: it was given something new to do."""
        self._started_s = time.monotonic()

    def rest(self) -> None:
        """Count no time until it is renewed: nobody waits for it."""
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
        """Hold all to their allowances; once this one has ended, raise unless that was well."""
        for child in tuple(_running):
            child._enforce_allowance()
        if self.has_ended():
            self.kill()
            self.raise_unless_well()

    def has_ended(self) -> bool:
        """Whether the process has ended; its exit code is known then.

        The system is asked, and no lock is held: one of the standard library's stays
        locked for ever where an interrupt comes at the wrong moment.
        """
        if self._process.returncode is None:
            try:
                pid, status = os.waitpid(self._process.pid, os.WNOHANG)
            except ChildProcessError:
                # Another thread saw the end and is about to tell, or was interrupted.
                self._unseen_polls += 1
                if self._unseen_polls > _POLLS_UNTIL_LOST:
                    self._process.returncode = -signal.SIGKILL
            else:
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._process.returncode = self._start.own_code(code)
        return self._process.returncode is not None

    def kill(self) -> None:
        """End the process and its whole session; nothing happens the second time."""
        # Once its end was seen, the number may belong to another process.
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

    @property
    def ending_signal(self) -> int:
        """The signal that ended the process; 0 for none, or one that runs."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else 0

    def tail(self) -> str:
        """The last lines the child printed, for an error message."""
        return tail(self.log)

    def wait(self, on_poll: Callable[[], None] = lambda: None) -> None:
        """Block until the child ended with exit code 0.

        Raises `WorkerTimedOut`, `WorkerOutOfMemory` or `WorkerCrashed`, with the last
        lines of its log, and `KeyboardInterrupt` where that was lost before; the process
        is gone in every case. While one child is waited for, every running one is held to
        its allowance.
        """
        try:
            poll_until(self.has_ended, on_poll)
        finally:
            self.kill()
        on_poll()
        self.raise_unless_well()

    def raise_unless_well(self) -> None:
        """Of a child that has ended: raise as `wait` does where that was not with exit code 0."""
        if self._stopped_for is not None:
            raise self._stopped_for
        self._start.raise_or_tell()
        code = self._process.returncode
        if code > 0:
            self._stopped_for = fault_of(self.log.parent)
            if self._stopped_for is not None:
                raise self._stopped_for
        if code:
            message = f"{self.label} {_how_it_ended(code)}\n{self.tail()}".rstrip()
            if code == -signal.SIGKILL:
                raise WorkerKilled(message, hint=_KILLED)
            raise WorkerCrashed(message, cause=Cause(status=code))

    def _enforce_allowance(self) -> None:
        if self.has_ended():
            # It did what it should in time; only nobody has asked for it yet.
            return
        timeout_s, memory_bytes = self.allowance.timeout_s, self.allowance.memory_bytes
        if time.monotonic() - self._started_s > timeout_s:
            self._stopped_for = WorkerTimedOut(
                f"{self.label} did not end within {timeout_s:g} s\n{self.tail()}".rstrip(),
                hint="raise --timeout-s if the model is that large",
            )
            self.kill()
        elif memory_bytes and resident_bytes(self._process.pid) > memory_bytes:
            self._stopped_for = WorkerOutOfMemory(
                f"{self.label} used more than {memory_bytes / 2**20:.0f} MiB\n"
                f"{self.tail()}".rstrip(),
                hint="raise --memory-limit-mib, or give fewer or smaller samples",
            )
            self.kill()


def start_ahead(starts: Iterable[Callable[[], Running]], *, width: int = 2) -> Iterator[Running]:
    """Start things `width` at a time and yield them in order, each to be waited for.

    The next is started when the one yielded before has been dealt with. Those still
    running are ended when the caller stops early.
    """
    started: deque[Running] = deque()
    pending = iter(starts)
    try:
        for start_one in pending:
            started.append(start_one())
            if len(started) == width:
                yield started[0]
                started.popleft().close()
        while started:
            yield started[0]
            started.popleft().close()
    finally:
        for one in started:
            one.close()


def poll_until(is_over: Callable[[], bool], on_poll: Callable[[], None] = lambda: None) -> None:
    """Block until `is_over()`, which is asked often; `on_poll` is called less so.

    Every running child is held to its allowance meanwhile. Raises `KeyboardInterrupt` where
    that was lost before.
    """
    for poll in itertools.count():
        _raise_lost_interrupt()
        if is_over():
            return
        if poll % _POLLS_PER_CHECK == 0:
            on_poll()
            for child in tuple(_running):
                child._enforce_allowance()
        time.sleep(_POLL_S)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants, in bytes; 0 once it has gone."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total


def end_on_signals() -> None:
    """Make Ctrl-C and SIGTERM an exception that cannot get lost, so that no child is left behind.

    Native code clears errors at places (the import of numpy was seen to), and with them
    an interrupt that came just then; so whoever waits for a child raises it once more.
    """
    global _interrupted
    _interrupted = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _raise_lost_interrupt() -> None:
    if _interrupted:
        raise KeyboardInterrupt


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def _end_session_when_closed(pipe: int, session: int) -> None:
    """Have the kernel kill a session when the writing end of a pipe it inherited closes.

    It works for any program, and while native code holds Python's lock.
    """
    if sys.platform == "linux":
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -session)
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
