"""The files that make a model part of a project."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeconv.types.model import FrozenStruct


class EmbeddedFile(FrozenStruct, kw_only=True, frozen=True):
    """A file that was written: its path below the directory, with `/`, and its content's hash."""

    path: str
    sha256: str


class Embedded(FrozenStruct, kw_only=True, frozen=True):
    """The files of one `embed`, as edgeconv-embedded.json next to them lists them.

    `key` is the hash of all inputs, so an equal key and equal files mean that there is nothing to
    do. `model_sha256` is of the .tflite, and `compiled_from` of the published one, "" where it is
    that. A model with the same `interface_id` may take its place in the code. Nothing here depends
    on the paths of the directory, the model or the data. `checksum` is in the file only; see
    edgeconv/system/store/checksums.py.
    """

    format: Literal[1] = 1
    target: str
    name: str
    symbol: str
    key: str
    model_sha256: str
    compiled_from: str = ""
    interface_id: str = ""
    files: tuple[EmbeddedFile, ...]
    options: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    checksum: str | msgspec.UnsetType = msgspec.UNSET
