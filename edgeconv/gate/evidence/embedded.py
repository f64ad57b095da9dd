"""A directory that `edgeconv embed` wrote: its files, and the model in them."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.published import link_of, read_document
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
# Each byte of a model takes six as C source, which edgeconv writes by default below 1 MiB.
_LARGEST_SOURCE_BYTES = 1 << 28
_ARRAY = re.compile(rb"const unsigned char (\w+)_model\[\w+\] = \{\s([^}]*)\};")


def embedded_links(
    root: Root, record: Path, published: Sequence[PublishedFile]
) -> tuple[Embedded | None, list[Link]]:
    """The record of an embedding, None where it is damaged, and its links."""
    embedded, links = read_document(root, record, Embedded, "embedding", "record of an embedding")
    if embedded is None:
        return None, links
    if len(embedded.files) > _MOST_FILES:
        text = f"it lists {len(embedded.files)} files, more than any target has"
        return None, [*links, link_of("embedding", record, "failed", text)]
    wrong = list(_wrong_files(root, record, embedded.files))
    if not wrong:
        text = f"{len(embedded.files)} files are as `edgeconv embed` wrote them"
        wrong = [link_of("embedding", record, "verified", text)]
    model = _model_link(root, record, embedded)
    return embedded, [*links, *wrong, model, _published_link(record, embedded, published)]


def listed_files(record: Path, embedded: Embedded) -> set[Path]:
    """The files that a record lists."""
    return {record.parent / file.path for file in embedded.files if _is_below(file.path)}


def _wrong_files(root: Root, record: Path, files: Sequence[EmbeddedFile]) -> Iterator[Link]:
    for file in files:
        if not _is_below(file.path):
            text = f"it names {units.plain(file.path)!r}, which is not below it"
            yield _failed(record, text)
            continue
        path = record.parent / file.path
        try:
            if hash_within(root, path) != file.sha256:
                yield _failed(path, "it is not as `edgeconv embed` wrote it", record)
        except InputRefused as error:
            yield _failed(path, error.message, record)


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return bool(path) and "\0" not in path and not parts.is_absolute() and ".." not in parts.parts


def _model_link(root: Root, record: Path, embedded: Embedded) -> Link:
    for file in embedded.files:
        path = record.parent / file.path
        if _is_below(file.path) and file.sha256 == embedded.model_sha256:
            return _holds(path, record, embedded)
    for file in embedded.files:
        path = record.parent / file.path
        if _is_below(file.path) and file.path.endswith("_model.c"):
            try:
                sha256 = array_sha256(read_within(root, path, _LARGEST_SOURCE_BYTES))
            except InputRefused as error:
                return _failed(path, error.message, record)
            if sha256 == embedded.model_sha256:
                return _holds(path, record, embedded)
            return _failed(path, "its array is not the model that the record names", record)
    text = (
        "the model is embedded with metadata added; whether it is the published one otherwise was "
        "not compared"
    )
    return link_of("embedding", record, "unchecked", text)


def array_sha256(source: bytes) -> str:
    """The sha256 of the bytes of a C array; "" without such an array."""
    array = _ARRAY.search(source)
    try:
        numbers = array[2].replace(b"0x", b"").replace(b",", b"") if array else b""
        return hashlib.sha256(bytes.fromhex(numbers.decode("ascii"))).hexdigest()
    except ValueError:
        return ""


def _holds(path: Path, record: Path, embedded: Embedded) -> Link:
    text = f"it contains the model, sha256 {units.plain(embedded.model_sha256)}"
    return link_of("embedding", path, "verified", text, record)


def _published_link(record: Path, embedded: Embedded, published: Sequence[PublishedFile]) -> Link:
    sha256 = embedded.compiled_from or embedded.model_sha256
    text = "it embeds this file" + (", compiled for an NPU" if embedded.compiled_from else "")
    for file in published:
        if file.sha256 and file.sha256 == sha256:
            return link_of("embedding", record, "verified", text, file.model)
    name = units.plain(embedded.name)
    known = [str(p.model) for p in published if p.artifact and p.artifact.name == embedded.name]
    if known:
        text = f"it embeds other bytes than those of {name} here: run `edgeconv embed` again"
        return link_of("embedding", record, "failed", text, ", ".join(known))
    text = f"the published file of {name} that it embeds was not found"
    return link_of("embedding", record, "unchecked", text)


def _failed(path: Path, text: str, against: Path | str = "") -> Link:
    return link_of("embedding", units.plain(str(path)), "failed", text, against)
