"""What is shipped: a model's files in a project, a step of a build, and what `verify` found."""

from typing import Literal, get_args

import msgspec

from edgeconv.types.model import FrozenStruct, Result


class EmbeddedFile(FrozenStruct, kw_only=True, frozen=True):
    """A file that was written: its path below the directory, with `/`, and its content's hash."""

    path: str
    sha256: str


class Embedded(Result, kw_only=True, frozen=True):
    """The files of one `embed`, as edgeconv-embedded.json next to them lists them.

    `key` is the hash of all inputs, so an equal key and equal files mean that there is nothing to
    do. `model_sha256` is of the .tflite, and `compiled_from` of the published one, "" where it is
    that. A model with the same `interface_id` may take its place in the code. Nothing here depends
    on the paths of the directory, the model or the data. `checksum` is in the file only; see
    edgeconv/system/store/hashes.py.
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


class Built(Result, kw_only=True, frozen=True):
    """What a build did for one model: `is_new` where it made anything; the files it stands on.

    All paths are absolute. `directory` has the `outputs`. `notes` are what there is to say of the
    last check of what was embedded, and of files that were edited and made again.
    """

    name: str
    is_new: bool
    directory: str
    embedded: Embedded
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()


LinkName = Literal["artifact", "manifest", "source", "verdict", "report", "lock", "embedding"]
LINK_NAMES: tuple[LinkName, ...] = get_args(LinkName)
LinkState = Literal["verified", "failed", "unchecked"]


class Link(FrozenStruct, kw_only=True, frozen=True):
    """The verification of one file against another.

    `against` is "" where that is the file's checksum, or where the other file is missing. `text`
    describes the result. "unchecked" is not a pass: `text` says what was missing.
    """

    link: LinkName
    file: str
    state: LinkState
    text: str
    against: str = ""


class Evidence(Result, kw_only=True, frozen=True):
    """The result of `verify` on some files and folders.

    "failed" where any link failed, or one that was required was not verified.
    """

    format: Literal[1] = 1
    paths: tuple[str, ...]
    outcome: Literal["verified", "failed"]
    links: tuple[Link, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.outcome == "verified"
