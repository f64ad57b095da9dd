"""Reports and locks, held against the published files that they speak of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.config import lock as locks
from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.published import checksum_links
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


class _Made(msgspec.Struct):
    """As much of a manifest as tells which file was measured."""

    file: str
    sha256: str


# Samples and answers are most of a report, and stay the text that they are. Any other field than
# those of a report is refused, as a report with it is.
_VIEW = msgspec.defstruct(
    "ReportView",
    [
        (one.name, one.type, one.default)
        if one.name == "checksum"
        else ("artifacts", tuple[_Made, ...], ())
        if one.name == "artifacts"
        else (one.name, msgspec.Raw, msgspec.Raw())
        for one in msgspec.structs.fields(Report)
    ],
    forbid_unknown_fields=True,
    frozen=True,
)


def report_links(
    found: EvidenceFiles, pieces: Sequence[PublishedFile]
) -> tuple[dict[str, Path], list[Link]]:
    """What the reports at a PATH were measured of; and the hash of each report that is whole."""
    hashes: dict[str, Path] = {}
    links: list[Link] = []
    for path in found.reports:
        try:
            content = read_within(found.root, path, LARGEST_REPORT_BYTES)
            view, checksum = decode_checked(content, _VIEW, what="report", path=path)
        except InputRefused as error:
            links.append(Link(link="report", file=str(path), state="failed", text=error.message))
            continue
        links += checksum_links(path, "report", checksum)
        links += _measured(path, view, pieces)
        if checksum != "changed":
            hashes[hashlib.sha256(content).hexdigest()] = path
    for path in found.pages:
        links += _page_links(found.root, path)
    return hashes, links


def judged_links(pieces: Iterable[PublishedFile], reports: dict[str, Path]) -> Iterator[Link]:
    """Whether the report that each verdict is of is one of those that are there."""
    for piece in pieces:
        if piece.verdict is None:
            continue
        judged = piece.verdict.report_sha256
        if not judged:
            text, state = "its verdict names no report: the check wrote none ([bench] out)", None
        elif judged in reports:
            text, state = f"its verdict is of this report, sha256 {judged}", "verified"
        elif reports:
            text, state = f"no report here is the one that was judged, sha256 {judged}", "failed"
        else:
            text, state = f"the report that was judged is not at hand, sha256 {judged}", None
        link = Link(
            link="report",
            file=str(piece.model),
            against=str(reports.get(judged, "")),
            state="unchecked",
            text=text,
        )
        yield msgspec.structs.replace(link, state=state) if state else link


def _measured(path: Path, view: Any, pieces: Sequence[PublishedFile]) -> Iterator[Link]:
    by_name: dict[str, dict[str, Path]] = {}
    for piece in pieces:
        by_name.setdefault(piece.model.name, {})[piece.sha256] = piece.model
    for made in view.artifacts:
        name = units.plain(made.file)
        link = Link(
            link="report",
            file=str(path),
            against=name,
            state="verified",
            text=f"it measured {name}, sha256 {units.plain(made.sha256)}",
        )
        if made.file not in by_name:
            yield msgspec.structs.replace(
                link, state="unchecked", text=f"{name}, which it measured, is not at hand"
            )
        elif made.sha256 in by_name[made.file]:
            yield msgspec.structs.replace(link, against=str(by_name[made.file][made.sha256]))
        else:
            yield msgspec.structs.replace(
                link, state="failed", text=f"it measured other bytes under the name {name}"
            )


def _page_links(root: Root, path: Path) -> list[Link]:
    try:
        checksum = html_checksum(read_within(root, path, LARGEST_REPORT_BYTES))
    except InputRefused as error:
        return [Link(link="report", file=str(path), state="failed", text=error.message)]
    if checksum == "whole":
        text = "the page is as it was written"
        return [Link(link="report", file=str(path), state="verified", text=text)]
    return checksum_links(path, "report", checksum)


def lock_links(found: EvidenceFiles, pieces: Sequence[PublishedFile]) -> Iterator[Link]:
    """Whether the files are those that a lock at a PATH accepted."""
    for path in found.locks:
        try:
            content = read_within(found.root, path, LARGEST_LOCK_BYTES)
            lock = locks.read(path)
        except InputRefused as error:
            yield Link(link="lock", file=str(path), state="failed", text=error.message)
            continue
        if not locks.is_as_written(content):
            text = "it is not as `edgeconv check --update` wrote it: it was edited"
            yield Link(link="lock", file=str(path), state="failed", text=text)
        for piece in pieces:
            if piece.artifact is not None:
                yield _locked(path, lock, piece)


def _locked(path: Path, lock: Lock, piece: PublishedFile) -> Link:
    link = Link(link="lock", file=str(piece.model), against=str(path), state="verified", text="")
    accepted = [
        (model, stage)
        for model in lock.models.values()
        for stage in model.stages
        if stage.role == "artifact" and stage.sha256 == piece.sha256
    ]
    if accepted:
        model, stage = accepted[0]
        text = f"accepted as {units.plain(stage.name)} of model {units.plain(model.name)}"
        return msgspec.structs.replace(link, text=text)
    name = piece.verdict.model if piece.verdict else ""
    recipe = piece.artifact.recipe.name if piece.artifact else None
    own = lock.models.get(name)
    if own and any(stage.recipe == recipe for stage in own.stages if stage.role == "artifact"):
        text = f"other bytes were accepted as {recipe} of model {units.plain(name)}"
        return msgspec.structs.replace(link, state="failed", text=text)
    return msgspec.structs.replace(link, state="unchecked", text="it is not in the lock")
