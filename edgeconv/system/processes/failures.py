"""Errors that a child passes to its parent, and faults of edgeconv itself."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import resource
import shutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

import msgspec

from edgeconv.system.processes.escaping import plain
from edgeconv.system.store import keep_log
from edgeconv.types.decoding import ready
from edgeconv.types.errors import (
    WORKER_ERRORS,
    Cause,
    EdgeconvError,
    InternalError,
    OutputRefused,
    ToolFailed,
    WorkerCrashed,
    WorkerKilled,
)
from edgeconv.types.words import without_values

FAILURE = "failure.json"
_LONGEST_CHARACTERS = 400
_MOST_BYTES = 2**16
_LEAST_FREE_BYTES = 2**12
_ROOM = "free some space, or set TMPDIR to a directory that has some"
# What a machine refuses, whichever file is read: what is done next.
_OF_MACHINE = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EROFS: "set TMPDIR to a directory that can be written",
    errno.EFBIG: "allow larger files: ulimit -f unlimited",
    errno.ENOMEM: "free some memory",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "close some programs, or allow more open files",
    errno.EIO: "check the disk",
}
_REPORT = "please report it with {} and what `edgeconv --version` prints"


class ChildFailure(msgspec.Struct, frozen=True):
    """An error as a child writes it."""

    kind: str
    message: str
    hint: str
    cause: Cause

    @classmethod
    def of(cls, error: EdgeconvError) -> ChildFailure:
        """The error as JSON can hold it."""
        return cls(type(error).__name__, error.message, error.hint, error.cause)

    def error(self, shown: Mapping[str, str] = MappingProxyType({})) -> EdgeconvError:
        """The same error in the parent, with paths of copies as the user knows them, `shown`."""
        kind = WORKER_ERRORS.get(self.kind, ToolFailed)
        message, hint = self.message, self.hint
        for copy, path in shown.items():
            message, hint = message.replace(copy, path), hint.replace(copy, path)
        return kind(message, hint=hint, cause=self.cause)


def report_faults() -> None:
    """Called in a child, in its directory: pass uncaught faults of edgeconv on to the parent.

    The process still ends with its traceback in the log, and exit code 1.
    """
    sys.excepthook = functools.partial(_report_fault, Path.cwd())


def _report_fault(
    directory: Path, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    del kind, trace
    log_traceback(error)
    failure = machine_error(error) or (internal_error(error) if _is_own(error) else None)
    if failure is not None:
        (directory / FAILURE).write_bytes(msgspec.json.encode(ChildFailure.of(failure)))


def machine_error(error: BaseException, what: str = "") -> OutputRefused | None:
    """The error for what the machine refused, as a full disk; None where it refused nothing.

    It is among an error's causes where a tool passed it on. `what` was being done.
    """
    seen: BaseException | None = error
    while seen is not None:
        number = _number_of(seen)
        if number in _OF_MACHINE:
            where = f": {seen.filename}" if isinstance(seen, OSError) and seen.filename else ""
            reason = f"{os.strerror(number)}{where}"
            return OutputRefused(f"{what}: {reason}" if what else reason, hint=_OF_MACHINE[number])
        seen = seen.__cause__ or seen.__context__
    return None


def _number_of(error: BaseException) -> int:
    """The system's number of an error, 0 if it is none of the system's.

    TensorFlow's file system has only the system's text, at the end of its own.
    """
    if isinstance(error, OSError):
        return error.errno or 0
    text = str(error)
    return next((number for number in _OF_MACHINE if text.endswith(os.strerror(number))), 0)


def blames_input(error: EdgeconvError) -> bool:
    """Whether a child ended so as one does that crashes on what it reads, or takes it endlessly.

    One that failed (an exit code above 0), or that somebody stopped, says nothing of its input.
    """
    is_failed = isinstance(error, WorkerCrashed) and error.cause.status > 0
    return not is_failed and not isinstance(error, WorkerKilled)


def _is_own(error: BaseException) -> bool:
    """Whether an uncaught exception is a fault of edgeconv, and not of the machine or of a tool."""
    package = type(error).__module__.partition(".")[0]
    is_ours = package == "edgeconv" or package in sys.stdlib_module_names
    return (
        is_ours and isinstance(error, Exception) and not isinstance(error, (OSError, MemoryError))
    )


def is_called_back(error: BaseException) -> bool:
    """Whether edgeconv, called by a tool, raised an error that the tool passed on."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    return names[-1] == "edgeconv" and names != ["edgeconv"] * len(names)


def no_room(label: str, directory: Path) -> OutputRefused | None:
    """The reason why a child could not write in `directory`, where it could not say one."""
    with contextlib.suppress(OSError):
        number = 0
        if shutil.disk_usage(directory).free < _LEAST_FREE_BYTES:
            number = errno.ENOSPC
        largest = max((path.lstat().st_size for path in directory.rglob("*")), default=0)
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY and largest > limit - _LEAST_FREE_BYTES:
            number = errno.EFBIG
        if number:
            return machine_error(OSError(number, "", str(directory)), label)
    return None


def fault_of(label: str, directory: Path) -> InternalError | OutputRefused | None:
    """The fault, of edgeconv or of the machine, that the child with this directory reported."""
    with (
        contextlib.suppress(OSError, msgspec.DecodeError),
        (directory / FAILURE).open("rb") as file,
    ):
        error = msgspec.json.decode(file.read(_MOST_BYTES), type=ready(ChildFailure)).error()
        if isinstance(error, InternalError):
            return with_traceback(error, directory / "log.txt", f"internal-{directory.name}")
        if isinstance(error, OutputRefused):
            return error.with_message(f"{label}: {error.message}")
    return None


def traceback_of(error: BaseException) -> str:
    """The lines that Python prints for an uncaught error, but without values of samples."""
    parts = traceback.format_exception(error)
    # Lines of code stay as they are.
    return "".join(p if p.startswith("  File ") else without_values(p) for p in parts)


def log_traceback(error: BaseException) -> None:
    """Called in a child: write the lines of `traceback_of` to its log."""
    sys.stderr.write(traceback_of(error))


def what_failed(error: BaseException) -> str:
    """The type and message of an error, in one line, shortened and without values of samples."""
    text = " ".join(without_values(traceback.format_exception_only(error)[-1]).split())
    # Names of files may have characters that cannot be encoded.
    return text.encode(errors="replace").decode()[:_LONGEST_CHARACTERS]


def internal_error(error: BaseException) -> InternalError:
    """The error for a fault of edgeconv; see `with_traceback` for where its traceback is."""
    return InternalError(f"internal error: {what_failed(error)}")


def with_traceback(error: InternalError, log: Path, name: str) -> InternalError:
    """The error with where its traceback is: `log` is kept as `name`, else its end is shown."""
    kept = keep_log(log, name)
    where = f"; the traceback is in {kept}" if kept else f"\n{tail(log)}"
    hint = _REPORT.format("that file" if kept else "the lines above")
    return InternalError(
        error.message + where, hint=hint, location=error.location, cause=error.cause
    )


# What child processes print: read while it grows, and cleaned for a terminal.

_TAIL_LINES = 12
_TAIL_BYTES = 2**16
_LONGEST_LINE = 240
_BYTES_PER_LINE = 2**10
# What TensorFlow and Python print in every run.
_CHATTER = (
    r"[IWE]\d+ [\d:.]+ |WARNING: All log|To enable the following|.*UserWarning: |  warnings\.warn"
    # The members that one still waits for.
    r"|/job:[\w/:]+$"
)
# With these a progress bar overwrites what it wrote before.
_BACK = re.compile("[\r\b]+")


def tail(log: Path) -> str:
    """The last lines of a log, each indented, for an error message."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    return "\n".join(f"  | {line}" for line in [*worth_showing(text.splitlines())][-_TAIL_LINES:])


def worth_showing(lines: Iterable[str]) -> Iterable[str]:
    """The lines that are neither empty nor TensorFlow's chatter, cleaned by `shown`."""
    return (shown(line) for line in lines if line.strip() and not re.match(_CHATTER, line))


def shown(line: str) -> str:
    """A line cut to a readable length, without control characters."""
    overwritten = [part for part in _BACK.split(line) if part.strip()]
    last = overwritten[-1].rstrip() if overwritten else ""
    return plain(last[:_LONGEST_LINE].expandtabs())


class NewLines:
    """The lines that a file got since the last call; an unfinished line waits.

    With `most`, at most that many of the last lines at a time, and only the end of an endless line.
    """

    def __init__(self, file: Path, *, most: int | None = None) -> None:
        self._file = file
        self._most = most
        self._read_bytes = 0
        self._begun = b""

    def read(self) -> list[str]:
        """The new lines without line ends; none while the file does not exist."""
        new = self._new_bytes()
        *lines, self._begun = (self._begun + new).split(b"\n")
        if self._most is not None:
            self._begun = self._begun[-_BYTES_PER_LINE:]
            lines = lines[-self._most :]
        # Only whole lines: an unfinished one may end within a character.
        return [line.decode("utf-8", "replace") for line in lines]

    def _new_bytes(self) -> bytes:
        try:
            size_bytes = self._file.stat().st_size
        except FileNotFoundError:
            return b""
        start = self._read_bytes
        if self._most is not None and size_bytes - start > self._most * _BYTES_PER_LINE:
            start = size_bytes - self._most * _BYTES_PER_LINE
            self._begun = b""
        if size_bytes <= start:
            return b""
        with self._file.open("rb") as file:
            file.seek(start)
            new = file.read(size_bytes - start)
        self._read_bytes = start + len(new)
        return new
