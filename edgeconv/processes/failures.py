"""Errors that a child passes to its parent, and faults of edgeconv itself."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import (
    WORKER_ERRORS,
    Cause,
    EdgeconvError,
    InternalError,
    OutputRefused,
    ToolFailed,
)
from edgeconv.processes.logs import tail
from edgeconv.store import keep_log

if TYPE_CHECKING:
    from types import TracebackType

FAILURE = "failure.json"
_LONGEST_CHARACTERS = 400
_MOST_BYTES = 2**16
_LEAST_FREE_BYTES = 2**12
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

    def error(self) -> EdgeconvError:
        """The same error in the parent."""
        kind = WORKER_ERRORS.get(self.kind, ToolFailed)
        return kind(self.message, hint=self.hint, cause=self.cause)


def report_faults() -> None:
    """Called in a child, in its directory: pass uncaught faults of edgeconv on to the parent.

    The process still ends with its traceback in the log, and exit code 1.
    """
    sys.excepthook = functools.partial(_report_fault, Path.cwd())


def _report_fault(
    directory: Path,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    sys.__excepthook__(kind, error, trace)
    if _is_own(error):
        failure = ChildFailure.of(internal_error(error))
        (directory / FAILURE).write_bytes(msgspec.json.encode(failure))


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


def full_disk(label: str, directory: Path) -> OutputRefused | None:
    """The reason why a child in `directory` could not say one, where no room was left for it."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(directory).free < _LEAST_FREE_BYTES:
            return OutputRefused(
                f"{label}: {os.strerror(errno.ENOSPC)}: {directory}",
                hint="free some space, or set TMPDIR to a directory that has some",
            )
    return None


def fault_of(directory: Path) -> InternalError | None:
    """The fault that the child with this directory reported, if any."""
    with (
        contextlib.suppress(OSError, msgspec.DecodeError),
        (directory / FAILURE).open("rb") as file,
    ):
        error = msgspec.json.decode(file.read(_MOST_BYTES), type=ChildFailure).error()
        if isinstance(error, InternalError):
            return with_traceback(error, directory / "log.txt", f"internal-{directory.name}")
    return None


def internal_error(error: BaseException) -> InternalError:
    """The error for a fault of edgeconv; see `with_traceback` for where its traceback is."""
    text = " ".join(traceback.format_exception_only(error)[-1].split())
    # Names of files may have characters that cannot be encoded.
    text = text.encode(errors="replace").decode()
    return InternalError(f"internal error: {text[:_LONGEST_CHARACTERS]}")


def with_traceback(error: InternalError, log: Path, name: str) -> InternalError:
    """The error with where its traceback is: `log` is kept as `name`, else its end is shown."""
    kept = keep_log(log, name)
    where = f"; the traceback is in {kept}" if kept else f"\n{tail(log)}"
    hint = _REPORT.format("that file" if kept else "the lines above")
    return InternalError(
        error.message + where, hint=hint, location=error.location, cause=error.cause
    )
