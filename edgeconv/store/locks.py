"""Locks between processes, so that two runs into one place take turns."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.errors import OutputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import FileLock


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`; another process that holds it is waited for.

    `on_wait` is called once if there is something to wait for. The system releases the
    lock when its holder dies. Raises `OutputRefused` where the file cannot be made.
    """
    from filelock import FileLock, Timeout

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


def _wait_for(lock: FileLock, path: Path) -> None:
    while True:
        try:
            lock.acquire()
        except FileNotFoundError:
            # Who held it took the directory away, having made it for nothing.
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            return
