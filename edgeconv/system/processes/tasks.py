"""Functions of this package in supervised child processes: argument and answer are JSON files.

`start_task` runs one, as `python -m edgeconv.system.processes.tasks MODULE:FUNCTION DIRECTORY`,
with the files in that directory. A `PersistentChild` stays: it is started without arguments, and a
line on its stdin names a function and its directory, one after the other. What a function keeps in
memory, as with `functools.cache`, is there for the next call.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import resource
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

import msgspec

from edgeconv.system.processes.failures import FAILURE, ChildFailure, NewLines, report_faults
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import Child, poll_until
from edgeconv.types import Allowance
from edgeconv.types.decoding import ready
from edgeconv.types.errors import EdgeconvError, WorkerCrashed

Answer = TypeVar("Answer")
Content = TypeVar("Content")
Given = TypeVar("Given", covariant=True)

PROGRESS = "progress.txt"
_ANSWER, _PEAK, _FINISHED = "answer.json", "peak.txt", "finished"
# What `call` leaves in the end.
ANSWER_FILES = (FAILURE, _ANSWER, _PEAK)
# An answer names files, and has no arrays.
_MOST_ANSWER_BYTES = 2**28
# Separates a line from its numbers; no text has it.
_BETWEEN = "\x1f"

_child_directory: Path | None = None


class TaskChild(Protocol):
    """What `ChildTask` needs of a `Child`: one of this process, or of a node of a cluster."""

    label: str
    log: Path

    @property
    def ending_signal(self) -> int:
        """The signal that ended the process; 0 for none, or one that runs."""

    def has_ended(self) -> bool:
        """Whether it has."""

    def kill(self) -> None:
        """End the process and its whole session, once."""

    def raise_unless_well(self) -> None:
        """Raise the error of one that has ended, and not well."""

    def tail(self) -> str:
        """The last lines that it printed."""


class RunningTask(Protocol[Given]):
    """A function of this package, running in a child of this machine or of a node of a cluster."""

    def has_ended(self) -> bool:
        """Whether it has."""

    def answer(self) -> Given:
        """What it returned, once it has ended. Raises its error, or how it ended."""

    def close(self) -> None:
        """End it."""


class ChildTask(Generic[Answer]):
    """A function of this package running in a child, wherever that is.

    `peak_memory_bytes`, of resident memory, is set with the answer.
    """

    def __init__(
        self,
        child: TaskChild,
        directory: Path,
        answer_type: type[Answer],
        shown: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.child = child
        self._shown = shown
        self.peak_memory_bytes = 0
        self._directory = directory
        self._reported = NewLines(directory / PROGRESS)
        self._answer_type = answer_type

    @property
    def directory(self) -> Path:
        """Where the function finds its argument, and puts its answer and other files."""
        return self._directory

    def result(self, on_progress: Callable[[str], None] = lambda _: None) -> Answer:
        """Block for the function's answer. Raises its error, or how the child ended."""
        try:
            self.wait_until(lambda: False, on_progress)
        finally:
            self.close()
        self.relay(on_progress)
        return self.answer()

    def wait_until(self, is_over: Callable[[], bool], on_progress: Callable[[str], None]) -> None:
        """Block until `is_over()`, or the child has ended; pass on what the function reports."""
        poll_until(lambda: is_over() or self.child.has_ended(), lambda: self.relay(on_progress))

    def relay(self, on_progress: Callable[[str], None]) -> None:
        """Pass on what the function has reported since the last time."""
        for line in self._reported.read():
            text, *numbers = line.split(_BETWEEN)
            on_progress(CountedLine(text, *map(int, numbers)) if numbers else text)

    def has_ended(self) -> bool:
        """Whether the child has."""
        return self.child.has_ended()

    def close(self) -> None:
        """End the child and all that it started."""
        self.child.kill()

    def answer(self) -> Answer:
        """The function's answer, once the child has ended. Raises its error, or how it ended."""
        self.close()
        self.child.raise_unless_well()
        return self._read_answer()

    def _read_answer(self) -> Answer:
        failure = self._read_file(FAILURE, ChildFailure)
        if failure is not None:
            raise failure.error(self._shown)
        answer = self._read_file(_ANSWER, self._answer_type)
        peak_memory_bytes = self._read_file(_PEAK, int)
        if answer is None or peak_memory_bytes is None:
            raise WorkerCrashed(f"{self.child.label} ended without an answer\n{self.child.tail()}")
        self.peak_memory_bytes = peak_memory_bytes
        return answer

    def _read_file(self, name: str, kind: type[Content]) -> Content | None:
        """The content of a file of the child's; None without one. Raises `WorkerCrashed`."""
        try:
            with (self._directory / name).open("rb") as file:
                content = file.read(_MOST_ANSWER_BYTES + 1)
            if len(content) <= _MOST_ANSWER_BYTES:
                return msgspec.json.decode(content, type=ready(kind))
            reason = "it is too long"
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            reason = str(error)
        raise WorkerCrashed(f"{self.child.label} wrote an unreadable answer: {name}: {reason}")


class Task(ChildTask[Answer]):
    """A function of this package running in a child of this process."""

    child: Child

    def __enter__(self) -> Task[Answer]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_task(
    function: Callable[[Any], Answer],
    job: msgspec.Struct,
    *,
    label: str,
    scratch: Path,
    access: Access,
    allowance: Allowance = Allowance(),
    environment: Mapping[str, str] | None = None,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> Task[Answer]:
    """Run `function(job)` in a child; its files go into a new directory in `scratch`.

    `access` is what else it may touch, such as the files that `job` names. `shown` has what the
    user calls them, by paths of copies: errors name those. `function` must be at module level. The
    parent only imports its module, which must import TensorFlow inside functions.
    """
    directory = Path(tempfile.mkdtemp(prefix=function.__name__ + "-", dir=scratch))
    name = put_job(function, job, directory)
    command = [sys.executable, "-m", "edgeconv.system.processes.tasks", name, str(directory)]
    child = Child(
        command,
        label=label,
        cwd=directory,
        access=access,
        allowance=allowance,
        environment=environment,
    )
    return Task(child, directory, answer_type(function), shown)


def put_job(function: Callable[[Any], Any], job: msgspec.Struct, directory: Path) -> str:
    """Write a function's argument for `call`, and return the function's name."""
    (directory / "job.json").write_bytes(msgspec.json.encode(job))
    return f"{function.__module__}:{function.__qualname__}"


def answer_type(function: Callable[[Any], Answer]) -> type[Answer]:
    """The type of what a function returns, by its annotation."""
    returned: type[Answer] = get_type_hints(inspect.unwrap(function))["return"]
    return returned


def job_type(function: Callable[[Any], Any]) -> type[msgspec.Struct]:
    """The type of a function's argument, by its annotation."""
    taken: type[msgspec.Struct] = next(iter(get_type_hints(function).values()))
    return taken


def report_progress(line: str) -> None:
    """In a child, pass a line to the parent's `on_progress`; elsewhere do nothing."""
    if _child_directory is not None:
        numbers = (line.completed, line.total) if isinstance(line, CountedLine) else ()
        text = line.replace("\n", " ").replace(_BETWEEN, " ")
        # Names of files may have characters that cannot be encoded.
        with (_child_directory / PROGRESS).open("ab") as file:
            whole = _BETWEEN.join([text, *map(str, numbers)]) + "\n"
            file.write(whole.encode("utf-8", "replace"))


def task_directory() -> Path:
    """Called in a child: the directory of the call, for files that belong to its answer."""
    assert _child_directory is not None
    return _child_directory


def _peak_bytes() -> int:
    """The peak of this process's resident memory; on Linux, `getrusage` includes the parent's."""
    # There may be no /proc.
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    unit = 1024 if sys.platform == "linux" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def call(name: str, directory: Path) -> None:
    """In a child, call a function with the argument in `directory`, and write its answer there."""
    global _child_directory
    _child_directory = directory
    module_name, function_name = name.split(":")
    function = getattr(import_module(module_name), function_name)
    content = (_child_directory / "job.json").read_bytes()
    job = msgspec.json.decode(content, type=ready(job_type(function)))
    try:
        answer = function(job)
    except EdgeconvError as error:
        failure = msgspec.json.encode(ChildFailure.of(error))
        (_child_directory / FAILURE).write_bytes(failure)
    else:
        (_child_directory / _PEAK).write_text(str(_peak_bytes()), encoding="ascii")
        (_child_directory / _ANSWER).write_bytes(msgspec.json.encode(answer))


class PersistentChild:
    """The child, in a new directory of `scratch`; `access` is what else it may touch.

    Each call may take the time of `allowance` while it is waited for; all calls share its memory.
    """

    def __init__(
        self,
        *,
        label: str,
        scratch: Path,
        access: Access,
        allowance: Allowance = Allowance(),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # The child may write nowhere else.
        self.directory = Path(tempfile.mkdtemp(prefix="standing-", dir=scratch))
        self.child = Child(
            [sys.executable, "-m", "edgeconv.system.processes.tasks"],
            label=label,
            cwd=self.directory,
            access=access,
            allowance=allowance,
            environment=environment,
        )
        self.child.rest()
        # The child ends when this object is collected, even if it was not closed.
        weakref.finalize(self, self.child.kill)
        self._calls = 0

    @property
    def is_at_work(self) -> bool:
        """Whether it can be called."""
        return not self.child.has_ended()

    def allow(self, allowance: Allowance) -> None:
        """Change the allowance."""
        self.child.allowance = allowance

    def start(self, function: Callable[[Any], Answer], job: msgspec.Struct) -> PendingCall[Answer]:
        """Call `function(job)` once the calls before it have ended.

        Wait for the results in the order of the calls. Where the child ends, that call and all
        later ones raise the reason.
        """
        directory = self.directory / f"call-{self._calls}"
        self._calls += 1
        directory.mkdir()
        self.child.tell(f"{put_job(function, job, directory)} {directory.name}")
        return PendingCall(self.child, directory, answer_type(function))

    def close(self) -> None:
        """End the process."""
        self.child.kill()


class PendingCall(Task[Answer]):
    """One call; its context manager does not end the child."""

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def is_finished(self) -> bool:
        """Whether there is an answer."""
        return (self._directory / _FINISHED).exists()

    def result(self, on_progress: Callable[[str], None] = lambda _: None) -> Answer:
        """The function's answer. Raises what it raised, or how the child died."""
        with self.child.waited_for():
            self.wait_until(lambda: self.is_finished, on_progress)
        self.relay(on_progress)
        if self.is_finished:
            return self._read_answer()
        return self.answer()


def main(*arguments: str) -> None:
    """In a child, call the function that is named, or those named on stdin until it closes."""
    report_faults()
    if not arguments:
        _call_from_stdin()
        return
    name, directory = arguments
    call(name, Path(directory))
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's teardown can take seconds, and can crash after the work is done.
    os._exit(0)


def _call_from_stdin() -> None:
    calls = os.fdopen(os.dup(0), "rb")
    # No function must read from it.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A function may change the working directory.
    here = Path.cwd()
    for line in calls:
        name, directory = line.decode().split()
        call(name, here / directory)
        (here / directory / _FINISHED).write_bytes(b"")


if __name__ == "__main__":
    # Under its real name, as the modules of the functions know it.
    import_module("edgeconv.system.processes.tasks").main(*sys.argv[1:])
