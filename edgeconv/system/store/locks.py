"""Locks between processes: runs that write into one directory take turns, and what is used is held.

A process that takes a directory of programs in the cache holds a shared lock on it until it ends.
Nobody removes a directory that is held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from typing import TYPE_CHECKING

from edgeconv.system.store.files import writable_directory
from edgeconv.types.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import FileLock

_LOCK = ".edgeconv.lock"


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`, waiting for another process that holds it.

    `on_wait` is called once before it waits. The system releases the lock when its holder dies.
    Raises `OutputRefused` if the file cannot be made.
    """
    from filelock import FileLock, Timeout

    if path.is_symlink():
        # Some versions of filelock empty the file that it leads to.
        raise OutputRefused(f"cannot lock {path}: it is a symbolic link", hint="remove it")
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait()
            _wait_for(lock, path)
    except OSError as error:
        raise OutputRefused(f"cannot lock {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def owned(
    directory: Path, *, on_wait: Callable[[], None] = lambda: None, passing: bool = False
) -> Iterator[None]:
    """Make `directory`, and hold it against other runs; see `locked`.

    If it is new and still empty at the end, it is removed while the lock holds: a run that waits
    for it makes it again. One that is `passing` is removed also where another run had made it.
    Raises `OutputRefused`.
    """
    topmost = writable_directory(directory)
    with locked(directory / _LOCK, on_wait=on_wait):
        try:
            yield
        finally:
            if topmost is not None or passing:
                _remove_unused(directory, topmost or directory)


def _remove_unused(directory: Path, topmost: Path) -> None:
    """Remove `directory` and those above it up to `topmost`, if there is only the lock in it."""
    with contextlib.suppress(OSError):
        if [path.name for path in directory.iterdir()] != [_LOCK]:
            return
        (directory / _LOCK).unlink()
        directory.rmdir()
        while directory != topmost:
            directory = directory.parent
            directory.rmdir()


def _wait_for(lock: FileLock, path: Path) -> None:
    while True:
        try:
            lock.acquire()
        except FileNotFoundError:
            # The run that held it removed the directory, which it had made for nothing.
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            return


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
