"""Whether anything changed since a step of a build was done: without numpy, and mostly unread."""

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
    """Where the stamp of a step is: in the cache, under what names it on this machine."""
    return cache_directory() / BUILDS / f"{hash_of(*identity)}.json"


def fresh(place: Path, key: str) -> Stamp | None:
    """The stamp, where it has this key and every file is as it was; else None.

    A file whose size and times are as they were is not read. One that only has other times, as
    after a checkout, is, and the stamp is written anew with them.
    """
    try:
        stamp = msgspec.json.decode(read_sealed(place, place.name) or b"", type=Stamp)
    except (msgspec.DecodeError, RecursionError):
        return None
    if stamp.key != key:
        return None
    found = [_all_now(states) for states in (stamp.inputs, stamp.published, stamp.outputs)]
    if None in found:
        return None
    inputs, published, outputs = (states or () for states in found)
    renewed = msgspec.structs.replace(stamp, inputs=inputs, published=published, outputs=outputs)
    if renewed != stamp:
        _write(renewed, place)
    return renewed


def write_stamp(
    place: Path,
    key: str,
    *,
    inputs: Iterable[Path],
    published: Iterable[Path],
    outputs: Iterable[Path],
    embedded: Embedded,
    began_ns: int,
) -> None:
    """Note down a step that is done, which began at that time (Unix, nanoseconds).

    Where an input was changed since then, nobody knows which content the step saw, and nothing is
    noted; nor where the cache cannot be written. The next build then looks at everything.
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
        _write(stamp, place)


def _write(stamp: Stamp, place: Path) -> None:
    with contextlib.suppress(OutputRefused):
        writable_directory(place.parent)
        publish_sealed(msgspec.json.encode(stamp), place, place.name)


def _all_now(states: Iterable[FileState]) -> tuple[FileState, ...] | None:
    """The states with the present times; None where any content is another."""
    found = []
    for state in states:
        now = _now(state)
        if now is None:
            return None
        found.append(now)
    return tuple(found)


def _now(state: FileState) -> FileState | None:
    path = Path(state.path)
    try:
        found = path.stat()
        size = 0 if path.is_dir() else found.st_size
        if size != state.size_bytes:
            return None
        if (found.st_mtime_ns, found.st_ctime_ns) == (state.mtime_ns, state.ctime_ns):
            return state
        now = _state(path)
    except OSError:
        return None
    return now if now.sha256 == state.sha256 else None


def _states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    return tuple(_state(path) for path in sorted(paths))


def _state(path: Path) -> FileState:
    # The times first: what changes while it is read has later ones.
    found = path.stat()
    is_directory = path.is_dir()
    return FileState(
        path=str(path),
        size_bytes=0 if is_directory else found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        sha256=_names_hash(path) if is_directory else sha256_file(path),
    )


def _names_hash(directory: Path) -> str:
    # A name is bytes to the system, and not always UTF-8.
    return hash_of(*sorted(ascii(path.name) for path in directory.iterdir()))
