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

# A run may hold what it has found in the cache for so long; that is never taken away.
GRACE_SECONDS = 3600.0


class CacheEntry(NamedTuple):
    """An entry of the cache: its stage, its size in bytes, when it was last used (Unix time)."""

    path: Path
    stage: str
    size_bytes: int
    used: float


def entries(root: Path) -> tuple[CacheEntry, ...]:
    """The whole entries of all stages, the one that was used last first.

    One that another process takes away meanwhile is left out. Raises `OutputRefused` where the
    cache cannot be looked into.
    """
    try:
        return tuple(sorted(_entries(root), key=lambda entry: -entry.used))
    except OSError as error:
        raise OutputRefused(
            f"cannot look into the cache {root}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to the right directory",
        ) from error


def prune(
    root: Path, most_bytes: int, *, grace_seconds: float = GRACE_SECONDS
) -> tuple[CacheEntry, ...]:
    """Take entries away until those left have at most `most_bytes`; returns those taken.

    What was not used for longest goes first. What was used within `grace_seconds` stays, for a
    run may be reading it, even where that is more than `most_bytes`. What killed runs left
    unfinished goes too. Any number of processes may prune, read and write at the same time.
    """
    for place in (root, *root.glob("*")):
        sweep_unfinished(place)
    found = entries(root)
    left = sum(entry.size_bytes for entry in found)
    newest = time.time() - grace_seconds
    taken = []
    for entry in reversed(found):
        if left <= most_bytes:
            break
        # Asked once more: a run may have found it since.
        if entry.used <= newest and _used_now(entry.path) <= newest:
            discard(entry.path)
            left -= entry.size_bytes
            taken.append(entry)
    return tuple(taken)


def size_bytes(directory: Path) -> int:
    """The bytes of all files below; those that go meanwhile do not count."""
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
