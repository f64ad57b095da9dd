"""Git LFS pointers: small texts in place of large files, until `git lfs pull`."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"
_LARGEST_BYTES = 1024
# At most this many files are read to count the pointers.
_MOST_COUNTED = 10_000


def is_pointer(content: bytes) -> bool:
    """Whether the bytes of a whole file are a Git LFS pointer."""
    return len(content) < _LARGEST_BYTES and content.startswith(_BEGINNING)


def refuse_pointer(path: Path) -> None:
    """Raise `InputRefused` if the file `path` can be read and is a Git LFS pointer."""
    if _holds_pointer(path):
        raise pointer_refusal(path)


def refuse_pointers_in(directory: Path) -> None:
    """Raise `InputRefused` if a file in `directory`, or below it, is a Git LFS pointer."""
    pointers = sorted(_pointers_below(directory))
    if pointers:
        raise _refusal(pointers[0], len(pointers) - 1, directory)


def pointer_refusal(path: Path) -> InputRefused:
    """The refusal of a file that is a pointer, with the number of others in its directory."""
    return _refusal(path, sum(other != path for other in _pointers_below(path.parent)), path.parent)


def _refusal(path: Path, others: int, directory: Path) -> InputRefused:
    files = "file" if others == 1 else "files"
    also = f"; so {'is' if others == 1 else 'are'} {others} other {files} in {directory}"
    return InputRefused(
        f"{path} is a Git LFS pointer, not the file itself{also if others else ''}",
        hint="run git lfs pull; in CI, check out with LFS (actions/checkout: lfs: true)",
    )


def _pointers_below(directory: Path) -> Iterator[Path]:
    count = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            count += 1
            if count > _MOST_COUNTED:
                return
            path = directory.joinpath(folder, name)
            if _holds_pointer(path):
                yield path


def _holds_pointer(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size < _LARGEST_BYTES:
            return is_pointer(path.read_bytes())
    return False
