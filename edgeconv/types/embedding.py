"""What was written into a project so that a model is part of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeconv.types.model import Noun


class EmbeddedFile(Noun, kw_only=True, frozen=True):
    """A file that was written: its path below the directory, with `/`, and its content's hash."""

    path: str
    sha256: str


class Embedded(Noun, kw_only=True, frozen=True):
    """What one `embed` wrote, as edgeconv-embedded.json has it beside the files.

    `key` is the hash of all that went in, so an equal key and equal files mean that there is
    nothing to do. `model_sha256` is of the .tflite. Nothing here depends on where the
    directory, the model or the data lie. `checksum` is in the file only; see
    edgeconv/store/checksums.py.
    """

    format: Literal[1] = 1
    target: str
    name: str
    symbol: str
    key: str
    model_sha256: str
    files: tuple[EmbeddedFile, ...]
    options: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    checksum: str | msgspec.UnsetType = msgspec.UNSET
