"""Temporary files and directories, each held by a lock while their maker lives.

So a run can tell what a killed run left, which it removes, from what another one is writing.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import string
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from edgeconv.types.errors import OutputRefused

PREFIX = ".edgeconv-new-"
# As `tempfile` makes names; nobody else's file is taken for one of these.
_LETTERS = string.ascii_lowercase + string.digits + "_"
_NAME = re.compile(re.escape(PREFIX) + f"[{_LETTERS}]{{8}}")


@contextlib.contextmanager
def unfinished_file(directory: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new, private file in `directory`, open for writing; removed in the end if still there."""
    with (
        _held(directory, _new_file, lambda path: path.unlink(missing_ok=True)) as (path, handle),
        os.fdopen(handle, "wb") as file,
    ):
        yield path, file


@contextlib.contextmanager
def unfinished_directory(directory: Path) -> Iterator[Path]:
    """A new, private directory in `directory`; removed in the end if still there."""
    with _held(directory, _new_directory, _remove_tree) as (path, handle):
        try:
            yield path
        finally:
            # It is gone before its lock is.
            _remove_tree(path)
            os.close(handle)


@contextlib.contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the block, and again, so that an interrupt during the first does no harm."""
    try:
        try:
            yield
        finally:
            end()
    finally:
        end()


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


@contextlib.contextmanager
def _held(
    directory: Path, make: Callable[[Path], int | None], remove: Callable[[Path], None]
) -> Iterator[tuple[Path, int]]:
    """What `make` makes and opens, once it is locked; its name is removed in the end."""
    is_held = False
    while not is_held:
        path = directory / (PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(8)))
        # The name is known first: an interrupt while it is being made leaves nothing behind.
        with ending(partial(remove, path)):
            handle = make(path)
            if handle is None:
                continue
            is_held = _hold(handle, path)
            if is_held:
                yield path, handle
            else:
                os.close(handle)


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _new_directory(path: Path) -> int | None:
    path.mkdir(0o700)
    # Another run may have removed it already.
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return None


def _remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _hold(handle: int, path: Path) -> bool:
    """Lock a new file or directory; False where another run removed it before that."""
    # A file system without locks: nobody can lock it then, so nobody removes it either.
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


_PREFIX = "edgeconv-"
# Held by the process that the directory belongs to.
_HOLD = ".held"


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A temporary directory, removed in the end; what killed runs left is removed first."""
    sweep()
    root = _root()
    with unfinished_directory(root) as unfinished, contextlib.ExitStack() as stack:
        stack.callback(os.close, _hold_scratch(unfinished))
        path = root / unfinished.name.replace(PREFIX, _PREFIX)
        # It has its final name only while it is held and whole.
        with ending(partial(_rename, path, unfinished)):
            unfinished.rename(path)
            yield path


def sweep() -> None:
    """Remove the directories of runs that are dead, as killed ones are."""
    root = _root()
    sweep_unfinished(root)
    for path in root.glob(f"{_PREFIX}*"):
        if _is_ours(path) and not _is_held(path):
            _remove(path)


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


def _hold_scratch(path: Path) -> int:
    """Hold the directory's lock; returns the open file."""
    file = os.open(path / _HOLD, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _is_ours(path: Path) -> bool:
    try:
        is_own = not path.is_symlink() and path.lstat().st_uid == os.geteuid()
        return is_own and (path / _HOLD).is_file()
    except OSError:
        return False


def _is_held(path: Path) -> bool:
    try:
        with (path / _HOLD).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # It has just been removed.
        return False
    return False
