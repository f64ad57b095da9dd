"""Supervised child processes: timeout, memory limit, crash turned into a typed error.

TensorFlow, the quantiser and every runtime run in a child, because each can abort
the process it is in. `start` runs any command under supervision; `start_task` runs
a function of this package in a child (`python -m edgeconv.workers MODULE:FUNCTION
DIRECTORY`), its argument and its answer passed as JSON files in that directory.

No child outlives its parent. Each is a session of its own, so that it goes with all
that it started; the parent ends it on any exception, Ctrl-C included; and should the
parent be killed, pipes to the child close, at which the kernel (on Linux) ends the
session, and a thread on standard input (everywhere, in tasks) does.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_type_hints

import msgspec

from edgeconv.errors import (
    WORKER_ERRORS,
    EdgeconvError,
    ToolFailed,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

Answer = TypeVar("Answer")


class HasChild(Protocol):
    """Anything that stands for a running child."""

    @property
    def child(self) -> Child:
        """The process."""


Running = TypeVar("Running", bound=HasChild)

DEFAULT_TIMEOUT_S = 3600.0
_TAIL_LINES = 12
_TAIL_BYTES = 2**16
_POLL_S = 0.05
# A program does nothing before it is tied to its parent, of which this line tells it.
_WAIT_FOR_A_LINE = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "sh")
# Without tab and what ends a line; a log's tail goes to the user's terminal.
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may use: wall-clock seconds, and resident bytes (0: no limit)."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0


class _Failure(msgspec.Struct, frozen=True):
    kind: str
    message: str
    hint: str


_running: set[Child] = set()


class Child:
    """A running child process. `wait` returns once it ended well, or raises why not.

    A context manager: leaving it ends the process, with all that it started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        label: str,
        cwd: Path,
        allowance: Allowance,
        environment: Mapping[str, str],
    ) -> None:
        self.label = label
        self.log = cwd / "log.txt"
        self._allowance = allowance
        self._started_s = time.monotonic()
        self._ended = threading.Event()
        self._stopped_for: EdgeconvError | None = None
        theirs, ours = os.pipe()
        self._tether = os.fdopen(ours, "wb")
        try:
            with os.fdopen(theirs) as end, self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*_WAIT_FOR_A_LINE, *command],
                    cwd=cwd,
                    env={**os.environ, **environment},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[end.fileno()],
                    bufsize=0,
                )
                _end_session_when_closed(end.fileno(), self._process.pid)
        except OSError:
            self._tether.close()
            raise
        threading.Thread(target=self._reap, daemon=True).start()
        _running.add(self)
        self._let_go()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _let_go(self) -> None:
        """Let the command begin, now that it is tied to this process."""
        assert self._process.stdin is not None
        # It may have been killed already.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")

    def _reap(self) -> None:
        self._process.wait()
        self._ended.set()

    def kill(self) -> None:
        """End the process and its whole session; nothing happens the second time."""
        # Once its end was seen, the number may belong to another process.
        if self not in _running:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._ended.wait()
        _running.discard(self)
        self._tether.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def tail(self) -> str:
        """The last lines the child printed, for an error message."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read(_TAIL_BYTES).decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()]
        shown = (_CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", line) for line in lines)
        return "\n".join(f"  | {line[:240]}" for line in [*shown][-_TAIL_LINES:])

    def wait(self, on_poll: Callable[[], None] = lambda: None) -> None:
        """Block until the child ended with exit code 0.

        Raises `WorkerTimedOut`, `WorkerOutOfMemory` or `WorkerCrashed`, with the last
        lines of its log; the process is gone in every case. While one child is waited
        for, every running one is held to its allowance.
        """
        try:
            while not self._ended.wait(_POLL_S):
                on_poll()
                for child in tuple(_running):
                    child._enforce_allowance()
        finally:
            self.kill()
        on_poll()
        if self._stopped_for is not None:
            raise self._stopped_for
        code = self._process.returncode
        if code:
            raise WorkerCrashed(f"{self.label} {_how_it_ended(code)}\n{self.tail()}".rstrip())

    def _enforce_allowance(self) -> None:
        if self._ended.is_set():
            # It did what it should in time; only nobody has asked for it yet.
            return
        timeout_s, memory_bytes = self._allowance.timeout_s, self._allowance.memory_bytes
        if time.monotonic() - self._started_s > timeout_s:
            self.kill()
            self._stopped_for = WorkerTimedOut(
                f"{self.label} did not end within {timeout_s:g} s\n{self.tail()}".rstrip(),
                hint="raise --timeout-s if the model is that large",
            )
        elif memory_bytes and resident_bytes(self._process.pid) > memory_bytes:
            self.kill()
            self._stopped_for = WorkerOutOfMemory(
                f"{self.label} used more than {memory_bytes / 2**20:.0f} MiB\n"
                f"{self.tail()}".rstrip(),
                hint="raise --memory-limit-mib, or give fewer or smaller samples",
            )


class Task(Generic[Answer]):
    """A function of this package running in a child. `result` blocks for its answer.

    `peak_memory_bytes`, of resident memory, is known once there is one.
    """

    def __init__(self, child: Child, directory: Path, answer_type: type[Answer]) -> None:
        self.child = child
        self.peak_memory_bytes = 0
        self._directory = directory
        self._answer_type = answer_type

    def __enter__(self) -> Task[Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()

    def result(self, on_progress: Callable[[str], None] = lambda _: None) -> Answer:
        """The function's answer. Raises what it raised, or how the child died."""
        seen = 0

        def relay() -> None:
            nonlocal seen
            lines = _complete_lines(self._directory / "progress.txt")
            for line in lines[seen:]:
                on_progress(line)
            seen = len(lines)

        self.child.wait(relay)
        failed = self._directory / "failure.json"
        if failed.exists():
            failure = msgspec.json.decode(failed.read_bytes(), type=_Failure)
            raise WORKER_ERRORS.get(failure.kind, ToolFailed)(failure.message, hint=failure.hint)
        answer = self._directory / "answer.json"
        if not answer.exists():
            raise WorkerCrashed(f"{self.child.label} ended without an answer\n{self.child.tail()}")
        self.peak_memory_bytes = int((self._directory / "peak.txt").read_bytes())
        return msgspec.json.decode(answer.read_bytes(), type=self._answer_type)


def start(
    command: Sequence[str],
    *,
    label: str,
    cwd: Path,
    allowance: Allowance = Allowance(),
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Run `command` under supervision in `cwd`, where its log is kept as log.txt."""
    return Child(command, label=label, cwd=cwd, allowance=allowance, environment=environment or {})


def start_task(
    function: Callable[[Any], Answer],
    job: msgspec.Struct,
    *,
    label: str,
    scratch: Path,
    allowance: Allowance = Allowance(),
    environment: Mapping[str, str] | None = None,
) -> Task[Answer]:
    """Run `function(job)` in a child; its files go into a new directory in `scratch`.

    `function` must be at module level, and is only named here, never called: a module
    of the folder tf/ can be imported by the parent as long as it imports TensorFlow
    inside its functions.
    """
    answer_type: type[Answer] = get_type_hints(inspect.unwrap(function))["return"]
    directory = Path(tempfile.mkdtemp(prefix=function.__name__ + "-", dir=scratch))
    (directory / "job.json").write_bytes(msgspec.json.encode(job))
    name = f"{function.__module__}:{function.__qualname__}"
    command = [sys.executable, "-m", "edgeconv.workers", name, str(directory)]
    child = start(command, label=label, cwd=directory, allowance=allowance, environment=environment)
    return Task(child, directory, answer_type)


def in_turn(starts: Iterable[Callable[[], Running]], *, width: int = 2) -> Iterator[Running]:
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
                started.popleft().child.kill()
        while started:
            yield started[0]
            started.popleft().child.kill()
    finally:
        for one in started:
            one.child.kill()


def report_progress(line: str) -> None:
    """Called in a child: pass a line to the parent's `on_progress`. Elsewhere: nothing."""
    if _child_directory is not None:
        with (_child_directory / "progress.txt").open("a", encoding="utf-8") as file:
            file.write(line.replace("\n", " ") + "\n")


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


def end_on_sigterm() -> None:
    """Make SIGTERM an exception, like Ctrl-C, so that no child is left behind."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    # As bytes: a line that is still being written may end within a character.
    return [line.decode("utf-8") for line in path.read_bytes().split(b"\n")[:-1]]


def _how_it_ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


_child_directory: Path | None = None


def _end_session_when_closed(pipe: int, session: int) -> None:
    """Have the kernel kill a session when the writing end of a pipe it inherited closes.

    It works for any program, and while native code holds Python's lock.
    """
    if sys.platform == "linux":
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -session)
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _die_with_parent() -> None:
    def watch() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _peak_bytes() -> int:
    """The peak of this process's resident memory.

    What `getrusage` and `wait4` tell begins, on Linux, with the peak of the parent.
    """
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _main(name: str, directory: str) -> None:
    global _child_directory
    _die_with_parent()
    _child_directory = Path(directory)
    module_name, function_name = name.split(":")
    function = getattr(import_module(module_name), function_name)
    job_type = next(iter(get_type_hints(function).values()))
    job = msgspec.json.decode((_child_directory / "job.json").read_bytes(), type=job_type)
    try:
        answer = function(job)
    except EdgeconvError as error:
        failure = _Failure(type(error).__name__, error.message, error.hint)
        (_child_directory / "failure.json").write_bytes(msgspec.json.encode(failure))
    else:
        (_child_directory / "peak.txt").write_text(str(_peak_bytes()), encoding="ascii")
        (_child_directory / "answer.json").write_bytes(msgspec.json.encode(answer))
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's teardown can take seconds, and can crash after the work is done.
    os._exit(0)


if __name__ == "__main__":
    # Run under its real name, so that `report_progress` sees the same module.
    import_module("edgeconv.workers")._main(sys.argv[1], sys.argv[2])
