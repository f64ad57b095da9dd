"""Which models this user has converted on this machine, and with which content.

A manifest names the model that it was made from, and `bench` loads that as the baseline. Whoever
wrote the manifest chose that name, so it is believed only of a model that the user converted. The
notes are in the user's state directory: a project, or a cache that was restored from elsewhere,
cannot add one.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from edgeconv.errors import OutputRefused
from edgeconv.store.files import publish_bytes
from edgeconv.store.hashes import hash_of

if TYPE_CHECKING:
    from pathlib import Path


# By the path of the model: what this process converted it knows also where no note can be written.
_hashes: dict[str, str] = {}


def note_converted(model: str | Path, sha256: str) -> None:
    """Note that the model at this path was converted as it is now.

    Where nothing can be written that is not said: what needs the note later says how to do without.
    """
    if was_converted(model, sha256):
        return
    note = _note(model)
    with contextlib.suppress(OSError, OutputRefused):
        note.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(sha256.encode(), note)
    _hashes[os.path.realpath(model)] = sha256


def was_converted(model: str | Path, sha256: str) -> bool:
    """Whether the model at this path was converted here last with this content."""
    if _hashes.get(os.path.realpath(model)) == sha256:
        return True
    try:
        return _note(model).read_bytes() == sha256.encode()
    except OSError:
        return False


def _note(model: str | Path) -> Path:
    from platformdirs import user_state_path

    return user_state_path("edgeconv") / "converted" / hash_of(os.path.realpath(model))
