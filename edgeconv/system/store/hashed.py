"""Hashes of files that are read once while they stay as they are."""

from __future__ import annotations

import os
import time
from pathlib import Path

from edgeconv.system.store.converted import read_note, write_note
from edgeconv.system.store.files import sha256_file

# The system's clock for files goes in steps of up to a hundredth of a second.
CLOCK_STEP_NS = 20_000_000
# A smaller file is read as fast as its note.
_LEAST_NOTED_BYTES = 2**20
# By the state of the file.
_hashes: dict[tuple[int, ...], str] = {}


def sha256_once(path: Path) -> str:
    """The sha256 of a file's bytes, which is computed once while the file does not change.

    That of a large file is noted for the user's next process. A file is unchanged while its
    device, inode, size, mtime and ctime are. No program can choose the ctime, so a change is
    noticed after which a tool has put the mtime back. Changes within one step of the clock look
    alike: the hash of a file that has only just changed is not remembered. Writes past the file
    system, or with the clock set back, are not noticed.
    """
    state = _state(path)
    known = _hashes.get(state)
    if known is not None:
        return known
    is_noted = state[2] >= _LEAST_NOTED_BYTES
    place, text = os.path.realpath(path), " ".join(map(str, state))
    if is_noted and (note := read_note("hashed", place)).startswith(f"{text} "):
        return _hashes.setdefault(state, note[len(text) + 1 :])
    is_settled = time.time_ns() - max(state[-2:]) > CLOCK_STEP_NS
    known = sha256_file(path)
    if is_settled and _state(path) == state:
        _hashes[state] = known
        if is_noted:
            write_note("hashed", place, f"{text} {known}")
    return known


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_size)
    return (*identity, status.st_mtime_ns, status.st_ctime_ns)
