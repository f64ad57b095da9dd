"""A step of an app's build, and what it depends on."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.embedding import Embedded
from edgeconv.types.model import FrozenStruct


class FileState(FrozenStruct, kw_only=True, frozen=True):
    """A file as it was: its size, when it was changed (Unix, nanoseconds), its content's hash.

    `mtime_ns` is what anybody may set, `ctime_ns` what the system noted of the last change. Of a
    directory, the hash is that of the names in it; `size_bytes` is 0.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


class Stamp(FrozenStruct, kw_only=True, frozen=True):
    """All that a step was done with, and what it made: where it is as it was, nothing is to do.

    `key` is the hash of the options and of the tools' versions. `published` are the .tflite and
    its manifest, which are made on the way to the `outputs`.
    """

    format: Literal[1] = 1
    key: str
    inputs: tuple[FileState, ...]
    published: tuple[FileState, ...]
    outputs: tuple[FileState, ...]
    embedded: Embedded


class Built(FrozenStruct, kw_only=True, frozen=True):
    """What a build did for one model: `is_new` where it made anything; the files it stands on.

    All paths are absolute. `directory` has the `outputs`. `notes` are what there is to say of the
    last check of what was embedded.
    """

    name: str
    is_new: bool
    directory: str
    embedded: Embedded
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()
