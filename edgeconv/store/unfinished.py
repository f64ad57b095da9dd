"""Unfinished files and directories, next to their targets: held by a lock while their maker lives.

So a run can tell what a killed run left, which it removes, from what another one is writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = ".edgeconv-new-"
# As `tempfile` makes names; nobody else's file is taken for one of these.
_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")


@contextlib.contextmanager
def unfinished_file(directory: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new, private file in `directory`, open for writing; removed in the end if still there."""
    path, handle = _held_file(directory)
    try:
        with os.fdopen(handle, "wb") as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def unfinished_directory(directory: Path) -> Iterator[Path]:
    """A new, private directory in `directory`; removed in the end if still there."""
    path, handle = _held_directory(directory)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def remove_directory(path: Path) -> None:
    """Remove a directory that is whole until it is gone. Raises OSError.

    Of several that remove it at once, one does; to the others it is not there.
    """
    aside = path.with_name(PREFIX + secrets.token_hex(4))
    path.rename(aside)
    # Another run may be sweeping it by now.
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(aside)


def sweep_unfinished(directory: Path) -> None:
    """Remove what killed runs left unfinished in `directory`, where that is possible."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                _remove_unheld(Path(entry.path))


def _remove_unheld(path: Path) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _held_file(directory: Path) -> tuple[Path, int]:
    while True:
        handle, name = tempfile.mkstemp(prefix=PREFIX, dir=directory)
        if _hold(handle, Path(name)):
            return Path(name), handle
        os.close(handle)


def _held_directory(directory: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _hold(handle, path):
                return path, handle
            os.close(handle)


def _hold(handle: int, path: Path) -> bool:
    """Lock a new file or directory; False where another run removed it before that."""
    # A file system without locks: nobody can lock it then, so nobody removes it either.
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
