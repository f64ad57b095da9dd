"""The size of the cache, and making it smaller."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edgeconv.system.store import locks
from edgeconv.system.store.cache import discard, used_at
from edgeconv.system.store.unfinished import sweep_unfinished
from edgeconv.types.errors import OutputRefused

# The environments of runtimes together; a run that makes one removes others beyond it.
ENVIRONMENTS_BYTES = 10 * 10**9
_ENVIRONMENTS = "runtimes"
# One of them is written last into an environment, and its time is when it was last used.
_MARKERS = ("ready.json", "ready")
# For this long a run may use what it has found in the cache; that is never removed.
GRACE_SECONDS = 3600.0


class CacheEntry(NamedTuple):
    """An entry of the cache: its stage, its size in bytes, when it was last used (Unix time)."""

    path: Path
    stage: str
    size_bytes: int
    used: float


def entries(root: Path, stages: str = "*") -> tuple[CacheEntry, ...]:
    """The entries of the stages of this pattern, the last used first. Raises `OutputRefused`."""
    try:
        return tuple(sorted(_entries(root, stages), key=lambda entry: -entry.used))
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
    run may be reading it, and so does the environment of a runtime that a process holds. What
    killed runs left unfinished is removed too. Any number of processes may prune, read and write at
    the same time.
    """
    for directory in (root, *root.glob("*")):
        sweep_unfinished(directory)
    return _pruned(entries(root), most_bytes, grace_seconds)


def prune_environments(
    root: Path,
    most_bytes: int = ENVIRONMENTS_BYTES,
    *,
    grace_seconds: float = GRACE_SECONDS,
) -> tuple[CacheEntry, ...]:
    """As `prune`, for the environments of runtimes alone."""
    return _pruned(entries(root, _ENVIRONMENTS), most_bytes, grace_seconds)


def _pruned(
    all_entries: Sequence[CacheEntry], most_bytes: int, grace_seconds: float
) -> tuple[CacheEntry, ...]:
    left = sum(entry.size_bytes for entry in all_entries)
    newest = time.time() - grace_seconds
    removed = []
    for entry in reversed(all_entries):
        if left <= most_bytes:
            break
        # A run may have used it since.
        if entry.used <= newest and _used_now(entry) <= newest and _removed(entry):
            left -= entry.size_bytes
            removed.append(entry)
    return tuple(removed)


def _removed(entry: CacheEntry) -> bool:
    """Remove an entry, unless it is an environment in use; returns whether it is gone."""
    if entry.stage != _ENVIRONMENTS:
        discard(entry.path)
        return True
    with locks.alone(entry.path) as is_free:
        if is_free:
            discard(entry.path)
        return is_free


def size_bytes(directory: Path) -> int:
    """The bytes of all files below."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _used_now(entry: CacheEntry) -> float:
    with contextlib.suppress(FileNotFoundError):
        return _used(entry.path, entry.stage) or 0.0
    return 0.0


def _used(path: Path, stage: str) -> float | None:
    if stage != _ENVIRONMENTS:
        return used_at(path)
    return next(filter(None, (locks.used_at(path / name) for name in _MARKERS)), None)


def _entries(root: Path, stages: str) -> Iterator[CacheEntry]:
    for stage in sorted(root.glob(stages)):
        if not stage.is_dir():
            continue
        for path in stage.iterdir():
            with contextlib.suppress(FileNotFoundError):
                used = _used(path, stage.name)
                if used is not None:
                    yield CacheEntry(path, stage.name, size_bytes(path), used)
