"""The hashes of large files, kept from process to process for as long as a file stays as it is.

The notes are in the user's state directory, where neither a project nor a restored cache can add
one. A note that is missing, torn or of another state of its file costs the time to read that file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

# Smaller files are hashed sooner than a note is written.
LEAST_BYTES = 2**20
# File systems keep times in steps of up to two seconds: what is younger may change unnoticed.
LEAST_AGE_S = 5.0
_MOST_NOTES = 500


class _Note(msgspec.Struct, frozen=True, array_like=True):
    state: tuple[int, ...]
    sha256: str


def noted_hash(path: Path, state: tuple[int, ...]) -> str | None:
    """The hash that a file had in this state; None where that is not known."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        note = msgspec.json.decode((_directory() / _name(path)).read_bytes(), type=_Note)
        if note.state == state:
            return note.sha256
    return None


def note_hash(path: Path, state: tuple[int, ...], sha256: str) -> None:
    """Note the hash of a file in this state, where notes can be written; the oldest notes go."""
    from edgeconv.store.unfinished import sweep_unfinished, unfinished_file

    with contextlib.suppress(OSError):
        directory = _directory()
        directory.mkdir(parents=True, exist_ok=True)
        sweep_unfinished(directory)
        with unfinished_file(directory) as (temporary, file):
            file.write(msgspec.json.encode(_Note(state, sha256)))
            file.flush()
            os.replace(temporary, directory / _name(path))
        notes = sorted(directory.iterdir(), key=lambda note: note.stat().st_mtime)
        for old in notes[:-_MOST_NOTES]:
            old.unlink()


def is_noted(path: Path, size_bytes: int, changed_ns: int) -> bool:
    """Whether the hash of this file is worth a note that will hold.

    Files of an image that is mounted read-only may have times that a tool has chosen, all of them
    alike from image to image.
    """
    if size_bytes < LEAST_BYTES or time.time_ns() - changed_ns < LEAST_AGE_S * 1e9:
        return False
    return not os.statvfs(path).f_flag & os.ST_RDONLY


def _name(path: Path) -> str:
    # A path is bytes to the system, and not always UTF-8.
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


def _directory() -> Path:
    from platformdirs import user_state_path

    return user_state_path("edgeconv") / "hashes"
