"""Temporary directories, each held by a lock: one that nobody holds is of a killed run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.system.store.unfinished import (
    PREFIX,
    ending,
    remove_directory,
    sweep_unfinished,
    unfinished_directory,
)
from edgeconv.types.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "edgeconv-"
# Held by the process that the directory belongs to; it has the id of that process.
_HOLD = ".held"


class Scratch(NamedTuple):
    """A temporary directory of a run, and the id of the run's process, 0 for a dead one."""

    path: Path
    held_by: int


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A temporary directory, removed in the end; what killed runs left is removed first."""
    sweep()
    root = _root()
    with unfinished_directory(root) as unfinished, contextlib.ExitStack() as stack:
        stack.callback(os.close, _hold(unfinished))
        path = root / unfinished.name.replace(PREFIX, _PREFIX)
        # It has its final name only while it is held and whole.
        with ending(partial(_rename, path, unfinished)):
            unfinished.rename(path)
            yield path


def scratch_directories() -> tuple[Scratch, ...]:
    """The temporary directories that edgeconv made for this user, by path."""
    root = _root()
    return tuple(
        Scratch(path, _held_by(path)) for path in sorted(root.glob(f"{_PREFIX}*")) if _is_ours(path)
    )


def sweep() -> tuple[Path, ...]:
    """Remove the directories of runs that are dead, as killed ones are; returns them."""
    sweep_unfinished(_root())
    dead = tuple(scratch.path for scratch in scratch_directories() if not scratch.held_by)
    for path in dead:
        _remove(path)
    return dead


def _root() -> Path:
    """Where temporary directories are made. Raises `OutputRefused`."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise OutputRefused(
            f"temporary files cannot be written: {error.strerror}",
            hint="set TMPDIR to a directory where files can be written, or allow files to be "
            "written: ulimit -f unlimited",
        ) from error


def _rename(path: Path, to: Path) -> None:
    with contextlib.suppress(OSError):
        path.rename(to)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        remove_directory(path)


def _hold(path: Path) -> int:
    """Hold the directory's lock; returns the open file."""
    file = os.open(path / _HOLD, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, str(os.getpid()).encode())
    return file


def _is_ours(path: Path) -> bool:
    try:
        is_own = not path.is_symlink() and path.lstat().st_uid == os.geteuid()
        return is_own and (path / _HOLD).is_file()
    except OSError:
        return False


def _held_by(path: Path) -> int:
    try:
        with (path / _HOLD).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(OSError, ValueError):
            return int((path / _HOLD).read_bytes())
        return -1
    except OSError:
        # It has just been removed.
        return 0
    return 0
