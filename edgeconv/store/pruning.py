"""The size of the cache, and making it smaller."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import OutputRefused
from edgeconv.store.cache import discard, used_at
from edgeconv.store.unfinished import sweep_unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# For this long a run may use what it has found in the cache; that is never removed.
GRACE_SECONDS = 3600.0


class CacheEntry(NamedTuple):
    """An entry of the cache: its stage, its size in bytes, when it was last used (Unix time)."""

    path: Path
    stage: str
    size_bytes: int
    used: float


def entries(root: Path) -> tuple[CacheEntry, ...]:
    """The entries of all stages, the last used first. Raises `OutputRefused`."""
    try:
        return tuple(sorted(_entries(root), key=lambda entry: -entry.used))
    except OSError as error:
        raise OutputRefused(
            f"cannot read the cache {root}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to the right directory",
        ) from error


def prune(
    root: Path, most_bytes: int, *, grace_seconds: float = GRACE_SECONDS
) -> tuple[CacheEntry, ...]:
    """Remove entries until the others have at most `most_bytes`; returns the removed ones.

    The least recently used goes first. An entry that was used within `grace_seconds` stays, for a
    run may be reading it. What killed runs left unfinished is removed too. Any number of
    processes may prune, read and write at the same time.
    """
    for directory in (root, *root.glob("*")):
        sweep_unfinished(directory)
    all_entries = entries(root)
    left = sum(entry.size_bytes for entry in all_entries)
    newest = time.time() - grace_seconds
    removed = []
    for entry in reversed(all_entries):
        if left <= most_bytes:
            break
        # A run may have used it since.
        if entry.used <= newest and _used_now(entry.path) <= newest:
            discard(entry.path)
            left -= entry.size_bytes
            removed.append(entry)
    return tuple(removed)


def size_bytes(directory: Path) -> int:
    """The bytes of all files below."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _used_now(entry: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return used_at(entry) or 0.0
    return 0.0


def _entries(root: Path) -> Iterator[CacheEntry]:
    for stage in sorted(root.iterdir()) if root.is_dir() else ():
        if not stage.is_dir():
            continue
        for path in stage.iterdir():
            with contextlib.suppress(FileNotFoundError):
                used = used_at(path)
                if used is not None:
                    yield CacheEntry(path, stage.name, size_bytes(path), used)
