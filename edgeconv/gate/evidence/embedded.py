"""A folder that `edgeconv embed` wrote: its files, and the model that is in them."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.published import document
from edgeconv.gate.evidence.reading import hash_within, read_within
from edgeconv.reporting import units
from edgeconv.types import Embedded, Link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.gate.evidence.reading import Root
    from edgeconv.types import EmbeddedFile

_MOST_FILES = 10_000
# Of a model as text: six bytes for one, and edgeconv writes that below 1 MiB unless it is told.
_LARGEST_SOURCE_BYTES = 1 << 28
_ARRAY = re.compile(rb"const unsigned char (\w+)_model\[\w+\] = \{\s([^}]*)\};")


def embedded_links(
    root: Root, record: Path, pieces: Sequence[PublishedFile]
) -> tuple[Embedded | None, list[Link]]:
    """What a record of an embedding is held against, and the record; None where it is damaged."""
    embedded, links = document(root, record, Embedded, "embedding", "record of an embedding")
    if embedded is None:
        return None, links
    if len(embedded.files) > _MOST_FILES:
        text = f"it lists {len(embedded.files)} files, more than any target has"
        return None, [*links, _failed(record, text)]
    wrong = list(_wrong_files(root, record, embedded.files))
    if not wrong:
        text = f"{len(embedded.files)} files are as `edgeconv embed` wrote them"
        wrong = [Link(link="embedding", file=str(record), state="verified", text=text)]
    model = _model_link(root, record, embedded)
    return embedded, [*links, *wrong, model, _published_link(record, embedded, pieces)]


def listed(record: Path, embedded: Embedded) -> set[Path]:
    """The files that a record speaks for."""
    return {record.parent / one.path for one in embedded.files if _is_below(one.path)}


def _wrong_files(root: Root, record: Path, files: Sequence[EmbeddedFile]) -> Iterator[Link]:
    for one in files:
        if not _is_below(one.path):
            yield _failed(record, f"it names {units.plain(one.path)!r}, which is not below it")
            continue
        path = record.parent / one.path
        try:
            if hash_within(root, path) != one.sha256:
                yield _failed(path, "it is not as `edgeconv embed` wrote it", record)
        except InputRefused as error:
            yield _failed(path, error.message, record)


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return bool(path) and "\0" not in path and not parts.is_absolute() and ".." not in parts.parts


def _model_link(root: Root, record: Path, embedded: Embedded) -> Link:
    """Whether the bytes of the model are in one of the files, as a file or as an array in C."""
    files = [one for one in embedded.files if _is_below(one.path)]
    whole = next((one for one in files if one.sha256 == embedded.model_sha256), None)
    if whole is not None:
        return _holds(record.parent / whole.path, record, embedded)
    for one in files:
        if one.path.endswith("_model.c"):
            path = record.parent / one.path
            try:
                found = array_sha256(read_within(root, path, _LARGEST_SOURCE_BYTES))
            except InputRefused as error:
                return _failed(path, error.message, record)
            if found == embedded.model_sha256:
                return _holds(path, record, embedded)
            return _failed(path, "its array is not the model that the record names", record)
    text = "the model is embedded with metadata in it, as its file in the record; whether it is"
    return Link(
        link="embedding",
        file=str(record),
        state="unchecked",
        text=f"{text} the published one but for that was not compared",
    )


def array_sha256(source: bytes) -> str:
    """The sha256 of the bytes that an array in C stands for; "" where there is no such array."""
    found = _ARRAY.search(source)
    try:
        numbers = found[2].replace(b"0x", b"").replace(b",", b"") if found else b""
        return hashlib.sha256(bytes.fromhex(numbers.decode("ascii"))).hexdigest()
    except ValueError:
        return ""


def _holds(path: Path, record: Path, embedded: Embedded) -> Link:
    return Link(
        link="embedding",
        file=str(path),
        against=str(record),
        state="verified",
        text=f"it holds the model, sha256 {units.plain(embedded.model_sha256)}",
    )


def _published_link(record: Path, embedded: Embedded, pieces: Sequence[PublishedFile]) -> Link:
    """Whether what was embedded is one of the published files that are at hand."""
    link = Link(link="embedding", file=str(record), state="verified", text="")
    wanted = embedded.model_sha256
    for piece in pieces:
        if piece.sha256 and piece.sha256 == wanted:
            return msgspec.structs.replace(
                link, against=str(piece.model), text="it was made from this file"
            )
    name = units.plain(embedded.name)
    known = [piece for piece in pieces if piece.artifact and piece.artifact.name == embedded.name]
    if known:
        text = f"it was made from other bytes than those of {name} here: run `edgeconv embed` again"
        return msgspec.structs.replace(
            link, state="failed", against=", ".join(str(one.model) for one in known), text=text
        )
    text = f"the published file of {name} that it was made from is not at hand"
    return msgspec.structs.replace(link, state="unchecked", text=text)


def _failed(path: Path, text: str, against: Path | None = None) -> Link:
    return Link(
        link="embedding",
        file=units.plain(str(path)),
        against=str(against or ""),
        state="failed",
        text=text,
    )
