"""A published file: held against its manifest, its source and the verdict of its last check."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

import msgspec

from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.evidence.reading import LARGEST_DOCUMENT_BYTES, Root, hash_within, read_within
from edgeconv.reporting import units
from edgeconv.reporting.last_check import verdict_file
from edgeconv.reporting.limits import sentence
from edgeconv.store import decode_checked
from edgeconv.types import Artifact, LastCheck, Link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from edgeconv.store.checksums import ChecksumState
    from edgeconv.types import LinkName

Noun = TypeVar("Noun", bound=msgspec.Struct)

_CHANGED = "it is not as edgeconv wrote it: a byte of it changed, or it was edited"
_WITHOUT_CHECKSUM = (
    "an older edgeconv wrote it, without a checksum: whether it was edited since is not known"
)
# A source larger than this is looked at only where it is named.
_MOST_SOURCE_FILES = 20_000
_MOST_SOURCE_BYTES = 1 << 32
_LARGE = "{} is larger than what is hashed here"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A .tflite that was published, and what its folder says of it.

    `sha256` is that of its bytes, "" where they cannot be read; `artifact` and `verdict` are None
    where they are missing or damaged.
    """

    root: Root
    model: Path
    sha256: str
    artifact: Artifact | None
    verdict: LastCheck | None


def document(
    root: Root, path: Path, kind: type[Noun], link: LinkName, what: str
) -> tuple[Noun | None, list[Link]]:
    """The noun in a file and what its checksum says; None where it is damaged."""
    try:
        content = read_within(root, path, LARGEST_DOCUMENT_BYTES)
        noun, checksum = decode_checked(content, kind, what=what, path=path)
    except InputRefused as error:
        return None, [Link(link=link, file=str(path), state="failed", text=error.message)]
    return noun, checksum_links(path, link, checksum)


def checksum_links(path: Path, link: LinkName, checksum: ChecksumState) -> list[Link]:
    """What a checksum says of a document, where it does not say that it is whole."""
    if checksum == "changed":
        return [Link(link=link, file=str(path), state="failed", text=_CHANGED)]
    if checksum == "none":
        return [Link(link=link, file=str(path), state="unchecked", text=_WITHOUT_CHECKSUM)]
    return []


def piece_of(root: Root, manifest: Path) -> tuple[PublishedFile, list[Link]]:
    """The published file of a manifest, and the links between these two and its verdict."""
    artifact, links = document(root, manifest, Artifact, "manifest", "manifest")
    model = manifest.with_suffix(".tflite")
    sha256 = ""
    if artifact is not None:
        sha256, more = _held_against_manifest(root, model, manifest, artifact)
        links += more
    verdict, more = _verdict_of(root, model, sha256)
    piece = PublishedFile(root=root, model=model, sha256=sha256, artifact=artifact, verdict=verdict)
    return piece, links + more


def lone_piece(root: Root, model: Path, sources: Collection[str]) -> Link | None:
    """What there is to say of a .tflite without a manifest; None for one that is a source.

    `sources` are the hashes of those.
    """
    try:
        if hash_within(root, model) in sources:
            return None
        text = "it has no manifest: nothing says what it was made from, or that these are its bytes"
    except InputRefused as error:
        text = error.message
    return Link(link="manifest", file=str(model), state="failed", text=text)


def _held_against_manifest(
    root: Root, model: Path, manifest: Path, artifact: Artifact
) -> tuple[str, list[Link]]:
    def link(text: str) -> Link:
        return Link(
            link="artifact", file=str(model), against=str(manifest), state="failed", text=text
        )

    if PurePath(artifact.file).name != artifact.file or artifact.file != model.name:
        return "", [link(f"its manifest is that of {units.plain(artifact.file)!r}")]
    try:
        sha256 = hash_within(root, model, artifact.size_bytes)
    except InputRefused as error:
        return "", [link(error.message)]
    if sha256 != artifact.sha256:
        return "", [link("its bytes are not those that the manifest describes")]
    whole = Link(
        link="artifact",
        file=str(model),
        against=str(manifest),
        state="verified",
        text=f"sha256 {sha256}",
    )
    return sha256, [whole]


def _verdict_of(root: Root, model: Path, sha256: str) -> tuple[LastCheck | None, list[Link]]:
    place = verdict_file(model)
    if not os.path.lexists(place):
        text = "no verdict is beside it: it was never checked, or the verdict was removed"
        return None, [Link(link="verdict", file=str(model), state="unchecked", text=text)]
    verdict, links = document(root, place, LastCheck, "verdict", "verdict of a check")
    if verdict is None or any(link.state == "failed" for link in links):
        return None, links
    if verdict.sha256 != sha256:
        text = "it judged other bytes than these: run `edgeconv check` again"
        failed = Link(
            link="verdict", file=str(place), against=str(model), state="failed", text=text
        )
        return None, [*links, failed]
    return verdict, [*links, _judged(verdict, place, model)]


def _judged(verdict: LastCheck, place: Path, model: Path) -> Link:
    """A verdict on these bytes. What was rejected is not verified, as it is not embedded."""
    when = units.plain(verdict.date)
    broken = "; ".join(sentence(one) for one in verdict.findings if not one.ok)
    if verdict.outcome == "passed":
        beside = ", beside the lock too" if verdict.is_locked else ""
        state, text = "verified", f"it passed its check on {when}{beside}"
    elif verdict.outcome == "inconclusive":
        state, text = "unchecked", f"its check on {when} had too few samples to tell: {broken}"
    else:
        state, text = "failed", f"its check on {when} rejected it: {broken}"
    link = Link(link="verdict", file=str(place), against=str(model), state="unchecked", text=text)
    return msgspec.structs.replace(link, state=state)


def source_links(pieces: Iterable[PublishedFile], source: Path | None) -> Iterator[Link]:
    """Whether each file was made from the model that is there, or that `source` names."""
    hashes: dict[Path, str | Link] = {}
    for piece in pieces:
        if piece.artifact is None:
            continue
        place = source or Path(piece.artifact.source_path)
        if place not in hashes:
            hashes[place] = _source_hash(place, is_named=source is not None)
        yield _source_link(piece.model, piece.artifact, place, hashes[place])


def _source_link(model: Path, artifact: Artifact, place: Path, found: str | Link) -> Link:
    where = units.plain(str(place))
    if isinstance(found, Link):
        return msgspec.structs.replace(found, file=str(model), against=where)
    is_same = found == artifact.source_sha256
    text = (
        f"made from sha256 {found}"
        if is_same
        else f"made from sha256 {artifact.source_sha256}, and what is there has {found}"
    )
    state = "verified" if is_same else "failed"
    link = Link(link="source", file=str(model), against=where, state="unchecked", text=text)
    return msgspec.structs.replace(link, state=state)


def _source_hash(place: Path, *, is_named: bool) -> str | Link:
    """The hash of a model, or why there is none."""
    from edgeconv.source.loading import identify

    link = Link(link="source", file="", state="unchecked", text="")
    try:
        if not (is_named or os.path.lexists(place)):
            return msgspec.structs.replace(link, text="it is not at hand: name it with --source")
        if not is_named and (reason := _not_hashed(place)):
            return msgspec.structs.replace(link, text=reason)
        return identify(place).sha256
    except (InputRefused, UsageError) as error:
        if is_named:
            raise
        text = f"what is there now is not what it was made from: {error.message}"
        return msgspec.structs.replace(link, state="failed", text=text)
    except (OSError, ValueError) as error:
        if is_named:
            raise InputRefused(f"{place} cannot be read: {error}") from error
        return msgspec.structs.replace(link, text=f"it cannot be read: {error}")


def _not_hashed(place: Path) -> str:
    """Why a source is not read to its end; "" where it is. Raises `InputRefused` for no file.

    Anybody may have written the manifest that names it. Files of no size are those of the system
    that have no end, or wait; nothing is followed out of a directory.
    """
    if not place.is_dir():
        status = place.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            raise InputRefused(f"{place} is not a file with anything in it")
        return _LARGE.format(place) if status.st_size > _MOST_SOURCE_BYTES else ""
    top, count, size = os.path.realpath(place), 0, 0
    folders = [place]
    while folders:
        with os.scandir(folders.pop()) as listing:
            for entry in listing:
                count += 1
                if entry.is_symlink() and not _is_inside(entry.path, top):
                    return f"{entry.path} is a symbolic link out of {place}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    size += entry.stat().st_size
                if count > _MOST_SOURCE_FILES or size > _MOST_SOURCE_BYTES:
                    return _LARGE.format(place)
    return ""


def _is_inside(path: str, top: str) -> bool:
    return os.path.realpath(path).startswith(top.rstrip("/") + "/")
