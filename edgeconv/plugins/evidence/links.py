"""What belongs together: files and manifests, sources, verdicts, reports, locks and embeddings."""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeVar

import msgspec

from edgeconv.plugins.evidence.files import (
    LARGEST_DOCUMENT_BYTES,
    LARGEST_LOCK_BYTES,
    LARGEST_REPORT_BYTES,
    EvidenceFiles,
    Root,
    hash_within,
    read_within,
)
from edgeconv.reporting import units
from edgeconv.reporting.files import verdict_file
from edgeconv.reporting.limits import sentence
from edgeconv.requests.config import lock as locks
from edgeconv.system.store import decode_checked, html_checksum
from edgeconv.system.store.hashes import ChecksumState
from edgeconv.system.store.notes import find_source
from edgeconv.types import (
    Artifact,
    Embedded,
    EmbeddedFile,
    LastCheck,
    Link,
    LinkName,
    LinkState,
    Lock,
    Report,
)
from edgeconv.types.errors import InputRefused, UsageError

Document = TypeVar("Document", bound=msgspec.Struct)

_CHANGED = "it is not as edgeconv wrote it: it was damaged or edited"
_WITHOUT_CHECKSUM = "it has no checksum: whether it was edited is not known"
# A larger source is hashed only where it is named.
_MOST_SOURCE_FILES = 20_000
_MOST_SOURCE_BYTES = 1 << 32
_TOO_LARGE = "{} is too large to be hashed; name it with --source"
_MOST_FILES = 10_000
# Each byte of a model takes six as C source, which edgeconv writes by default below 1 MiB.
_LARGEST_SOURCE_BYTES = 1 << 28
_ARRAY = re.compile(rb"const unsigned char (\w+)_model\[\w+\] = \{\s([^}]*)\};")


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A published .tflite with its manifest and verdict.

    `sha256` is the hash of its bytes, "" if they cannot be read; `artifact` and `verdict` are
    None if they are missing or damaged.
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
    """The content of a file, None if it is damaged, and the state of its checksum."""
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
    """The hash of the file, "" unless the manifest has it, and the link."""
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
        artifact = file.artifact
        path = source or find_source(
            artifact.source_path, artifact.source_sha256, file.model.parent
        )
        if path not in hashes:
            hashes[path] = _source_hash(path, is_named=source is not None)
        sha256, state, text = hashes[path]
        expected = artifact.source_sha256
        if sha256 == expected:
            state, text = "verified", f"converted from sha256 {sha256}"
        elif sha256:
            state, text = "failed", f"converted from sha256 {expected}, but this has {sha256}"
        yield link_of("source", file.model, state, text, units.plain(str(path)))


def _source_hash(path: Path, *, is_named: bool) -> tuple[str, LinkState, str]:
    """The hash of a model, or "" with the state and reason of the link."""
    from edgeconv.model.source.loading import identify

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
    """Why a source is not read; "" if it is. Raises `InputRefused` for a special file.

    Anybody may have written the manifest that names it. Files of size 0 may be endless ones of the
    system. Links out of a directory are not followed.
    """
    if not path.is_dir():
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            raise InputRefused(f"{path} is not a file with content")
        return _TOO_LARGE.format(path) if status.st_size > _MOST_SOURCE_BYTES else ""
    inside, count, size = os.path.realpath(path).rstrip("/") + "/", 0, 0
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as listing:
            for entry in listing:
                count += 1
                if entry.is_symlink() and not os.path.realpath(entry.path).startswith(inside):
                    return f"{entry.path} is a symbolic link out of {path}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file():
                    size += entry.stat().st_size
                if count > _MOST_SOURCE_FILES or size > _MOST_SOURCE_BYTES:
                    return _TOO_LARGE.format(path)
    return ""


class _MeasuredFile(msgspec.Struct):
    """The fields of a manifest that identify the measured file."""

    file: str
    sha256: str


# Samples and answers are most of a report, and are not decoded. Unknown fields are refused, as in
# a report.
_VIEW = msgspec.defstruct(
    "ReportView",
    [
        (field.name, field.type, field.default)
        if field.name == "checksum"
        else ("artifacts", tuple[_MeasuredFile, ...], ())
        if field.name == "artifacts"
        else (field.name, msgspec.Raw, msgspec.Raw())
        for field in msgspec.structs.fields(Report)
    ],
    forbid_unknown_fields=True,
    frozen=True,
)


def report_links(
    evidence: EvidenceFiles, files: Sequence[PublishedFile]
) -> tuple[dict[str, Path], list[Link]]:
    """The intact reports at a PATH by their hash, and the links of all reports."""
    hashes: dict[str, Path] = {}
    links: list[Link] = []
    for path in evidence.reports:
        try:
            content = read_within(evidence.root, path, LARGEST_REPORT_BYTES)
            view, checksum = decode_checked(content, _VIEW, what="report", path=path)
        except InputRefused as error:
            links.append(link_of("report", path, "failed", error.message))
            continue
        links += checksum_links(path, "report", checksum)
        links += _measured(path, view, files)
        if checksum != "changed":
            hashes[hashlib.sha256(content).hexdigest()] = path
    for path in evidence.pages:
        links += _page_links(evidence.root, path)
    return hashes, links


def verdict_report_links(
    files: Iterable[PublishedFile], reports: dict[str, Path]
) -> Iterator[Link]:
    """Whether the report of each verdict is one of `reports`, by hash."""
    for file in files:
        if file.verdict is None:
            continue
        sha256 = file.verdict.report_sha256
        state: LinkState = "unchecked"
        if not sha256:
            text = "its verdict names no report: the check wrote none ([bench] out)"
        elif sha256 in reports:
            text, state = f"its verdict is of this report, sha256 {sha256}", "verified"
        elif reports:
            text, state = (
                f"no report here is the one that its verdict names, sha256 {sha256}",
                "failed",
            )
        else:
            text = f"the report of its verdict was not found, sha256 {sha256}"
        yield link_of("report", file.model, state, text, reports.get(sha256, ""))


def _measured(path: Path, view: Any, files: Sequence[PublishedFile]) -> Iterator[Link]:
    by_name: dict[str, dict[str, Path]] = {}
    for file in files:
        by_name.setdefault(file.model.name, {})[file.sha256] = file.model
    for measured in view.artifacts:
        name = units.plain(measured.file)
        hashes = by_name.get(measured.file)
        if hashes is None:
            text = f"it measured {name}, which was not found"
            yield link_of("report", path, "unchecked", text, name)
        elif measured.sha256 in hashes:
            text = f"it measured {name}, sha256 {units.plain(measured.sha256)}"
            yield link_of("report", path, "verified", text, hashes[measured.sha256])
        else:
            text = f"it measured other bytes under the name {name}"
            yield link_of("report", path, "failed", text, name)


def _page_links(root: Root, path: Path) -> list[Link]:
    try:
        checksum = html_checksum(read_within(root, path, LARGEST_REPORT_BYTES))
    except InputRefused as error:
        return [link_of("report", path, "failed", error.message)]
    if checksum == "whole":
        return [link_of("report", path, "verified", "the page is as it was written")]
    return checksum_links(path, "report", checksum)


def lock_links(evidence: EvidenceFiles, files: Sequence[PublishedFile]) -> Iterator[Link]:
    """Whether the files are those that a lock at a PATH accepted."""
    for path in evidence.locks:
        try:
            content = read_within(evidence.root, path, LARGEST_LOCK_BYTES)
            lock = locks.read(path)
        except InputRefused as error:
            yield link_of("lock", path, "failed", error.message)
            continue
        if not locks.is_as_written(content):
            text = "it is not as `edgeconv check --update` wrote it: it was edited"
            yield link_of("lock", path, "failed", text)
        yield from (_lock_link(path, lock, file) for file in files if file.artifact is not None)


def _lock_link(path: Path, lock: Lock, file: PublishedFile) -> Link:
    for model in lock.models.values():
        for stage in model.stages:
            if stage.role == "artifact" and stage.sha256 == file.sha256:
                text = f"accepted as {units.plain(stage.name)} of model {units.plain(model.name)}"
                return link_of("lock", file.model, "verified", text, path)
    name = file.verdict.model if file.verdict else ""
    recipe = file.artifact.recipe.name if file.artifact else None
    own = lock.models.get(name)
    if own and any(stage.recipe == recipe for stage in own.stages if stage.role == "artifact"):
        text = f"other bytes were accepted as {recipe} of model {units.plain(name)}"
        return link_of("lock", file.model, "failed", text, path)
    return link_of("lock", file.model, "unchecked", "it is not in the lock", path)


def embedded_links(
    root: Root, record: Path, published: Sequence[PublishedFile]
) -> tuple[Embedded | None, list[Link]]:
    """The record of an embedding, None if it is damaged, and its links."""
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
