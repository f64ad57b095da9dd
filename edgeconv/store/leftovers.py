"""What edgeconv keeps on a machine, outside of the directories that it is called with."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import OutputRefused, unknown_name
from edgeconv.store.cache import cache_directory
from edgeconv.store.pruning import size_bytes
from edgeconv.store.scratch import scratch_directories, sweep
from edgeconv.store.unfinished import PREFIX, remove_directory, sweep_unfinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TEMPORARY = "temporary"
_KEY = "[0-9a-f]" * 64


class _FolderKind(NamedTuple):
    """What a folder of the cache is for, and the patterns of what edgeconv writes there."""

    text: str
    names: tuple[str, ...]


def _stage(text: str) -> _FolderKind:
    return _FolderKind(text, (_KEY,))


# By folder. Anything else in the cache directory is not ours.
_KINDS = {
    "accepting": _FolderKind("locks", (".edgeconv.lock",)),
    "answers": _stage("answers of models in versions of a runtime"),
    "artifact": _stage("verified .tflite files"),
    "builds": _FolderKind("what went into each build", (f"{_KEY}.json", f"{_KEY}.lock")),
    "check": _stage("verdicts"),
    "float": _stage("float32 graphs"),
    "logs": _FolderKind("logs of what failed", ("*.log",)),
    "projects": _FolderKind("locks", (".edgeconv.lock",)),
    "reference": _stage("outputs of trained models"),
    "report": _stage("measurements"),
    "runtimes": _FolderKind("runtimes and their environments", ("*-py3*", "litertjs-*")),
    "tracking": _FolderKind("locks", (".edgeconv.lock",)),
    "trainings": _FolderKind("checkpoints of unfinished trainings", (_KEY,)),
    "versions": _FolderKind("versions in pip's index", (_KEY,)),
}


@dataclass(frozen=True)
class CachePart:
    """One part of it: `count` files or directories of together `size_bytes`."""

    name: str
    text: str
    directory: Path
    count: int
    size_bytes: int


def parts() -> tuple[CachePart, ...]:
    """All parts by name, the temporary files of runs last.

    Raises `OutputRefused` where the cache cannot be read.
    """
    root = cache_directory()
    by_name = {name: tuple(_ours(root / name, kind)) for name, kind in _KINDS.items()}
    shown = [
        CachePart(name, _KINDS[name].text, root / name, len(paths), sum(map(_size, paths)))
        for name, paths in by_name.items()
        if paths
    ]
    scratch = scratch_directories()
    if scratch:
        sizes = sum(_size(directory.path) for directory in scratch)
        text = "temporary files of runs"
        shown.append(CachePart(TEMPORARY, text, scratch[0].path.parent, len(scratch), sizes))
    return tuple(shown)


def clear(names: Iterable[str] = ()) -> tuple[CachePart, ...]:
    """Remove the parts of these names, all without any; returns what was there.

    Raises `UsageError` for an unknown name, and `OutputRefused` while another run, which may use
    them, is at work, or where something cannot be removed.
    """
    chosen = tuple(names) or (*_KINDS, TEMPORARY)
    for name in chosen:
        if name not in (*_KINDS, TEMPORARY):
            raise unknown_name("part of the cache", name, (*_KINDS, TEMPORARY))
    removed = [part for part in parts() if part.name in chosen]
    _refuse_running()
    for name in set(chosen) & set(_KINDS):
        for path in _ours(cache_directory() / name, _KINDS[name]):
            _remove(path)
        _remove_if_empty(cache_directory() / name)
    sweep()
    sweep_unfinished(cache_directory())
    _remove_if_empty(cache_directory())
    return tuple(removed)


def _refuse_running() -> None:
    for scratch in scratch_directories():
        if scratch.held_by not in (0, os.getpid()):
            raise OutputRefused(
                f"another run of edgeconv (process {scratch.held_by}) may be using the cache",
                hint="wait until it has ended, or end it",
            )


def _ours(folder: Path, kind: _FolderKind) -> Iterator[Path]:
    """What edgeconv wrote into a folder of the cache."""
    try:
        if folder.is_dir() and not folder.is_symlink():
            names = (*kind.names, f"{PREFIX}*")
            yield from sorted(path for name in names for path in folder.glob(name))
    except OSError as error:
        raise OutputRefused(
            f"cannot read the cache {folder}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to the right directory",
        ) from error


def _size(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return size_bytes(path)
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            remove_directory(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OutputRefused(f"cannot remove {path}: {error.strerror}") from error


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
