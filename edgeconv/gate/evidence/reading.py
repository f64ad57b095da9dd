"""Reading of untrusted files: only regular ones, and of limited size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A .tflite has at most 2 GiB, by its offsets; other files are smaller.
LARGEST_HASHED_BYTES = 1 << 32
LARGEST_REPORT_BYTES = 1 << 28
LARGEST_DOCUMENT_BYTES = 1 << 24
LARGEST_LOCK_BYTES = 1 << 22
# Of all files of one PATH; sparse files are cheap to create.
_MOST_HASHED_BYTES = 1 << 34
_BLOCK_BYTES = 1 << 20


@dataclass
class Root:
    """The directory that files must be in, and how many bytes of it may still be hashed."""

    path: Path
    left_bytes: int = _MOST_HASHED_BYTES


def read_within(root: Root, path: Path, limit_bytes: int) -> bytes:
    """The content of a file in `root`.

    Raises `InputRefused` for a file that is not regular, outside of `root`, larger than the limit,
    or unreadable.
    """
    with _open(root, path, limit_bytes) as (file, size):
        return file.read(size)


def head_within(root: Root, path: Path, count: int) -> bytes:
    """The first bytes of a file of any size. Raises `InputRefused` likewise."""
    with _open(root, path, None) as (file, _):
        return file.read(count)


def hash_within(root: Root, path: Path, size_bytes: int | None = None) -> str:
    """The sha256 of a file in `root`, "" if it is not of `size_bytes`. Raises likewise."""
    with _open(root, path, LARGEST_HASHED_BYTES) as (file, size):
        if size_bytes is not None and size != size_bytes:
            return ""
        root.left_bytes -= size
        if root.left_bytes < 0:
            raise InputRefused(f"{root.path} has more bytes than are hashed in one run")
        digest = hashlib.sha256()
        # Only the bytes that there were: the file may grow while it is read.
        while size > 0 and (block := file.read(min(_BLOCK_BYTES, size))):
            digest.update(block)
            size -= len(block)
        return digest.hexdigest()


@contextlib.contextmanager
def _open(root: Root, path: Path, limit_bytes: int | None) -> Iterator[tuple[BinaryIO, int]]:
    real, top = os.path.realpath(path), os.path.realpath(root.path)
    if real != top and not real.startswith(top.rstrip("/") + "/"):
        raise InputRefused(
            f"{path} is a symbolic link that leads out of {root.path}", hint="copy it with cp -rL"
        )
    try:
        # A pipe would block, and a terminal would become the controlling one.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputRefused(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputRefused(f"{path} cannot be read: {reason}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise InputRefused(f"{path} is not a regular file")
    with open(handle, "rb") as file:  # noqa: PTH123
        if limit_bytes is not None and status.st_size > limit_bytes:
            raise InputRefused(f"{path} has {status.st_size} bytes, more than {limit_bytes}")
        try:
            yield file, status.st_size
        except OSError as error:
            raise InputRefused(f"{path} cannot be read: {error.strerror}") from error
