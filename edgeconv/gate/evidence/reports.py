"""Reports and locks, checked against the published files that they name."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.config import lock as locks
from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.published import checksum_links, link_of
from edgeconv.gate.evidence.reading import LARGEST_LOCK_BYTES, LARGEST_REPORT_BYTES, read_within
from edgeconv.reporting import units
from edgeconv.store import decode_checked, html_checksum
from edgeconv.types import Link, Lock, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from edgeconv.gate.evidence.files import EvidenceFiles
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.gate.evidence.reading import Root
    from edgeconv.types import LinkState


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
