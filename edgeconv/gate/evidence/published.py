"""A published file, checked against its manifest, its source and its verdict."""

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
    from edgeconv.types import LinkName, LinkState

Document = TypeVar("Document", bound=msgspec.Struct)

_CHANGED = "it is not as edgeconv wrote it: it was damaged or edited"
_WITHOUT_CHECKSUM = (
    "an older edgeconv wrote it without a checksum: whether it was edited since is not known"
)
# A larger source is hashed only where it is named.
_MOST_SOURCE_FILES = 20_000
_MOST_SOURCE_BYTES = 1 << 32
_TOO_LARGE = "{} is too large to be hashed; name it with --source"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A published .tflite with its manifest and verdict.

    `sha256` is the hash of its bytes, "" where they cannot be read; `artifact` and `verdict` are
    None where they are missing or damaged.
    """

    root: Root
    model: Path
    sha256: str
    artifact: Artifact | None
    verdict: LastCheck | None


def link_of(
    name: LinkName, file: object, state: LinkState, text: str, against: object = ""
) -> Link:
    """A link of the evidence, with its paths as text."""
    return Link(link=name, file=str(file), against=str(against), state=state, text=text)


def read_document(
    root: Root, path: Path, kind: type[Document], name: LinkName, what: str
) -> tuple[Document | None, list[Link]]:
    """The content of a file, None where it is damaged, and the state of its checksum."""
    try:
        content = read_within(root, path, LARGEST_DOCUMENT_BYTES)
        document, checksum = decode_checked(content, kind, what=what, path=path)
    except InputRefused as error:
        return None, [link_of(name, path, "failed", error.message)]
    return document, checksum_links(path, name, checksum)


def checksum_links(path: Path, name: LinkName, checksum: ChecksumState) -> list[Link]:
    """A link where the checksum of a document is wrong or missing."""
    if checksum == "changed":
        return [link_of(name, path, "failed", _CHANGED)]
    if checksum == "none":
        return [link_of(name, path, "unchecked", _WITHOUT_CHECKSUM)]
    return []


def read_published(root: Root, manifest: Path) -> tuple[PublishedFile, list[Link]]:
    """The published file of a manifest, and its links with manifest and verdict."""
    artifact, links = read_document(root, manifest, Artifact, "manifest", "manifest")
    model = manifest.with_suffix(".tflite")
    sha256 = ""
    if artifact is not None:
        sha256, link = _manifest_link(root, model, manifest, artifact)
        links.append(link)
    verdict, further = _read_verdict(root, model, sha256)
    file = PublishedFile(root=root, model=model, sha256=sha256, artifact=artifact, verdict=verdict)
    return file, links + further


def without_manifest(root: Root, model: Path, sources: Collection[str]) -> Link | None:
    """The link of a .tflite without a manifest; None if its hash is one of `sources`."""
    try:
        if hash_within(root, model) in sources:
            return None
        text = "it has no manifest: its source and its bytes cannot be checked"
    except InputRefused as error:
        text = error.message
    return link_of("manifest", model, "failed", text)


def _manifest_link(root: Root, model: Path, manifest: Path, artifact: Artifact) -> tuple[str, Link]:
    """The hash of the file, "" unless it is that of the manifest, and the link."""
    text = ""
    if PurePath(artifact.file).name != artifact.file or artifact.file != model.name:
        text = f"its manifest is that of {units.plain(artifact.file)!r}"
    else:
        try:
            sha256 = hash_within(root, model, artifact.size_bytes)
            if sha256 == artifact.sha256:
                return sha256, link_of("artifact", model, "verified", f"sha256 {sha256}", manifest)
            text = "its bytes are not those that the manifest describes"
        except InputRefused as error:
            text = error.message
    return "", link_of("artifact", model, "failed", text, manifest)


def _read_verdict(root: Root, model: Path, sha256: str) -> tuple[LastCheck | None, list[Link]]:
    path = verdict_file(model)
    if not os.path.lexists(path):
        text = "it has no verdict: it was never checked, or the verdict was removed"
        return None, [link_of("verdict", model, "unchecked", text)]
    verdict, links = read_document(root, path, LastCheck, "verdict", "verdict of a check")
    if verdict is None or any(link.state == "failed" for link in links):
        return None, links
    if verdict.sha256 != sha256:
        text = "it is the verdict of other bytes: run `edgeconv check` again"
        return None, [*links, link_of("verdict", path, "failed", text, model)]
    return verdict, [*links, _verdict_link(verdict, path, model)]


def _verdict_link(verdict: LastCheck, path: Path, model: Path) -> Link:
    """The link of a verdict on these bytes, verified only if they passed."""
    date = units.plain(verdict.date)
    broken = "; ".join(sentence(finding) for finding in verdict.findings if not finding.ok)
    state: LinkState = "failed"
    text = f"its check on {date} rejected it: {broken}"
    if verdict.outcome == "passed":
        locked = ", against the lock too" if verdict.is_locked else ""
        state, text = "verified", f"it passed its check on {date}{locked}"
    elif verdict.outcome == "inconclusive":
        state, text = "unchecked", f"its check on {date} had too few samples: {broken}"
    return link_of("verdict", path, state, text, model)


def source_links(files: Iterable[PublishedFile], source: Path | None) -> Iterator[Link]:
    """Whether each file was converted from `source`, or from what its manifest names."""
    hashes: dict[Path, tuple[str, LinkState, str]] = {}
    for file in files:
        if file.artifact is None:
            continue
        path = source or Path(file.artifact.source_path)
        if path not in hashes:
            hashes[path] = _source_hash(path, is_named=source is not None)
        sha256, state, text = hashes[path]
        expected = file.artifact.source_sha256
        if sha256 == expected:
            state, text = "verified", f"converted from sha256 {sha256}"
        elif sha256:
            state, text = "failed", f"converted from sha256 {expected}, but this has {sha256}"
        yield link_of("source", file.model, state, text, units.plain(str(path)))


def _source_hash(path: Path, *, is_named: bool) -> tuple[str, LinkState, str]:
    """The hash of a model, or "" with the state and reason of the link."""
    from edgeconv.source.loading import identify

    try:
        if not (is_named or os.path.lexists(path)):
            return "", "unchecked", "it was not found: name it with --source"
        if not is_named and (reason := _reason_not_to_hash(path)):
            return "", "unchecked", reason
        return identify(path).sha256, "verified", ""
    except (InputRefused, UsageError) as error:
        if is_named:
            raise
        return "", "failed", f"what is there now is not the source: {error.message}"
    except (OSError, ValueError) as error:
        if is_named:
            raise InputRefused(f"{path} cannot be read: {error}") from error
        return "", "unchecked", f"it cannot be read: {error}"


def _reason_not_to_hash(path: Path) -> str:
    """Why a source is not read; "" where it is. Raises `InputRefused` for a special file.

    Anybody may have written the manifest that names it. Files of size 0 may be endless ones of the
    system. Links out of a directory are not followed.
    """
    if not path.is_dir():
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            raise InputRefused(f"{path} is not a file with content")
        return _TOO_LARGE.format(path) if status.st_size > _MOST_SOURCE_BYTES else ""
    top, count, size = os.path.realpath(path), 0, 0
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as listing:
            for entry in listing:
                count += 1
                if entry.is_symlink() and not _is_inside(entry.path, top):
                    return f"{entry.path} is a symbolic link out of {path}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    size += entry.stat().st_size
                if count > _MOST_SOURCE_FILES or size > _MOST_SOURCE_BYTES:
                    return _TOO_LARGE.format(path)
    return ""


def _is_inside(path: str, top: str) -> bool:
    return os.path.realpath(path).startswith(top.rstrip("/") + "/")
