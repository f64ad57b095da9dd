"""Directories of programs in the cache: who uses them, and when they were last used.

A process that takes one holds a shared lock on it until it ends. Nobody removes a directory that is
held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLD = ".in-use"
# By directory: the open file that this process holds. The system closes it, also after a kill.
_held: dict[Path, int] = {}
_holding = threading.Lock()


def take(directory: Path, marker: Path) -> None:
    """Hold a directory until this process ends, and note the use in the time of its `marker`.

    A cache that cannot be written is not held; then nobody can remove anything there either.
    """
    with contextlib.suppress(OSError), _holding:
        if not _holds(directory):
            _held[directory] = _opened(directory, fcntl.LOCK_SH)
        os.utime(marker)


def used_at(marker: Path) -> float | None:
    """When the directory of a marker was last used, as Unix time; None if there is none."""
    with contextlib.suppress(OSError):
        return marker.stat().st_mtime
    return None


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Whether no process, this one included, holds a directory; none can take it meanwhile."""
    try:
        file = _opened(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(file)


def _opened(directory: Path, lock: int) -> int:
    file = os.open(directory / _HOLD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, lock)
    except OSError:
        os.close(file)
        raise
    return file


def _holds(directory: Path) -> bool:
    """Whether this process holds the directory, which may have been made again since."""
    file = _held.get(directory)
    if file is None:
        return False
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file), (directory / _HOLD).stat()):
            return True
    os.close(_held.pop(directory))
    return False
