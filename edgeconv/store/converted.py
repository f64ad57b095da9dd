"""Which models this user has converted on this machine, and with which content.

A manifest, which anybody may have written, names the model that `bench` loads as the baseline. That
name is trusted only for a model that the user converted. The notes are in the user's state
directory, where neither a project nor a restored cache can add one.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from edgeconv.errors import OutputRefused
from edgeconv.store.files import publish_bytes
from edgeconv.store.hashes import hash_of
from edgeconv.store.seals import state_directory

if TYPE_CHECKING:
    from pathlib import Path


# By the path of the model: what this process has converted, also where no note can be written.
_hashes: dict[str, str] = {}


def note_converted(model: str | Path, sha256: str) -> None:
    """Note that the model at this path was converted as it is now, where a note can be written."""
    if was_converted(model, sha256):
        return
    note = _note(model)
    with contextlib.suppress(OSError, OutputRefused):
        note.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(sha256.encode(), note)
    _hashes[os.path.realpath(model)] = sha256


def was_converted(model: str | Path, sha256: str) -> bool:
    """Whether the last conversion here of the model at this path was of this content."""
    if _hashes.get(os.path.realpath(model)) == sha256:
        return True
    try:
        return _note(model).read_bytes() == sha256.encode()
    except OSError:
        return False


def _note(model: str | Path) -> Path:
    return state_directory() / "converted" / hash_of(os.path.realpath(model))
