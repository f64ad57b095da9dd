"""Stamps of build steps, which show what changed since, mostly without reading files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import OutputRefused
from edgeconv.store import (
    cache_directory,
    hash_of,
    publish_sealed,
    read_sealed,
    sha256_file,
    writable_directory,
)
from edgeconv.store.hashes import CLOCK_STEP_NS
from edgeconv.types import Embedded, FileState, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

BUILDS = "builds"


def stamp_file(*identity: str) -> Path:
    """The path of the stamp of a step in the cache, by what identifies it on this machine."""
    return cache_directory() / BUILDS / f"{hash_of(*identity)}.json"


def read_fresh(path: Path, key: str) -> Stamp | None:
    """The stamp, if it has this key and every file is unchanged; else None.

    A file with the same size and times is not read. Where only the times differ, as after a
    checkout, it is read, and the stamp is updated.
    """
    try:
        stamp = msgspec.json.decode(read_sealed(path, path.name) or b"", type=Stamp)
    except (msgspec.DecodeError, RecursionError):
        return None
    if stamp.key != key:
        return None
    current = [_current_states(states) for states in (stamp.inputs, stamp.published, stamp.outputs)]
    if None in current:
        return None
    inputs, published, outputs = (states or () for states in current)
    renewed = msgspec.structs.replace(stamp, inputs=inputs, published=published, outputs=outputs)
    if renewed != stamp:
        _write(renewed, path)
    return renewed


def write_stamp(
    path: Path,
    key: str,
    *,
    inputs: Iterable[Path],
    published: Iterable[Path],
    outputs: Iterable[Path],
    embedded: Embedded,
    began_ns: int,
) -> None:
    """Write the stamp of a finished step that began at `began_ns` (Unix time).

    No stamp is written if an input changed since then, or if the cache cannot be written.
    """
    try:
        stamp = Stamp(
            key=key,
            inputs=_states(inputs),
            published=_states(published),
            outputs=_states(outputs),
            embedded=embedded,
        )
    except OSError:
        return
    if all(state.ctime_ns < began_ns - CLOCK_STEP_NS for state in stamp.inputs):
        _write(stamp, path)


def _write(stamp: Stamp, path: Path) -> None:
    with contextlib.suppress(OutputRefused):
        writable_directory(path.parent)
        publish_sealed(msgspec.json.encode(stamp), path, path.name)


def _current_states(states: Iterable[FileState]) -> tuple[FileState, ...] | None:
    """The states with the current times; None where any content changed."""
    current = []
    for state in states:
        now = _current_state(state)
        if now is None:
            return None
        current.append(now)
    return tuple(current)


def _current_state(state: FileState) -> FileState | None:
    path = Path(state.path)
    try:
        status = path.stat()
        size = 0 if path.is_dir() else status.st_size
        if size != state.size_bytes:
            return None
        if (status.st_mtime_ns, status.st_ctime_ns) == (state.mtime_ns, state.ctime_ns):
            return state
        now = _state(path)
    except OSError:
        return None
    return now if now.sha256 == state.sha256 else None


def _states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    return tuple(_state(path) for path in sorted(paths))


def _state(path: Path) -> FileState:
    # The times first: a file that changes while it is read gets later ones.
    status = path.stat()
    is_directory = path.is_dir()
    return FileState(
        path=str(path),
        size_bytes=0 if is_directory else status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        sha256=_names_hash(path) if is_directory else sha256_file(path),
    )


def _names_hash(directory: Path) -> str:
    # Names of files are not always UTF-8.
    return hash_of(*sorted(ascii(path.name) for path in directory.iterdir()))
