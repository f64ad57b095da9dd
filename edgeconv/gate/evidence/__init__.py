"""`verify`: whether a published model and all that was said and made of it belong together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, unknown_name
from edgeconv.gate.evidence.embedded import embedded_links, listed
from edgeconv.gate.evidence.files import find
from edgeconv.gate.evidence.published import lone_piece, piece_of, source_links
from edgeconv.gate.evidence.reports import judged_links, lock_links, report_links
from edgeconv.gate.evidence.signatures import Trust, signature_links
from edgeconv.types import LINK_NAMES, Evidence, Link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from edgeconv.gate.evidence.files import EvidenceFiles
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.types import LinkName

__all__ = ["Trust", "examine", "verify"]

_ABSENT: dict[LinkName, str] = {
    "artifact": "no published file is at hand",
    "verdict": "no verdict is at hand",
    "report": "no report is at hand",
    "lock": "no lock is at hand",
    "embedding": "no folder that `edgeconv embed` wrote is at hand",
    "signature": "nothing is signed",
}


def verify(
    *paths: str | Path,
    source: str | Path = "",
    require: Collection[LinkName] = (),
    trust: Trust = Trust(),
) -> Evidence:
    """Hold published files, and what was said and made of them, against one another.

    Each of `paths` is a folder that `convert`, `bench`, `check` or `embed` wrote in, or a file of
    one; they are taken together. `source` is the trained model, "" for the one that the manifests
    name, where it is at hand. `require` names links that have to be verified wherever there could
    be one. `trust` says who may have signed. Nothing is loaded, run, or fetched.

    Raises `InputRefused` for a path without anything to verify, `UsageError` for a link that is
    not known.
    """
    return examine(paths, source=source, require=require, trust=trust)[0]


def examine(
    paths: Sequence[str | Path],
    *,
    source: str | Path = "",
    require: Collection[LinkName] = (),
    trust: Trust = Trust(),
    to_sign: bool = False,
) -> tuple[Evidence, tuple[PublishedFile, ...]]:
    """What `verify` gives, and the published files that it is about. Raises as `verify`.

    `to_sign`: the paths are to be signed, and the signatures that they have do not count.
    """
    for name in require:
        if name not in LINK_NAMES:
            raise unknown_name("link", name, LINK_NAMES)
    finds = [find(path) for path in dict.fromkeys(map(Path, paths))]
    pieces, links = _pieces(finds)
    records = [_records(found, pieces) for found in finds]
    spoken_for = {path for files, _ in records for path in files}
    links += [link for _, some in records for link in some]
    links += _lone(finds, pieces, spoken_for)
    links += source_links(pieces, Path(source) if source else None)
    reports: dict[str, Path] = {}
    for found in finds:
        hashes, more = report_links(found, pieces)
        reports |= hashes
        links += [*more, *lock_links(found, pieces), *_overlooked(found)]
    links += judged_links(pieces, reports)
    for found in finds:
        links += signature_links(found, pieces, trust, is_replaced=to_sign)
        _refuse_without_evidence(found)
    links += _absent(links)
    links += _required(require, links, pieces)
    failed = any(link.state == "failed" for link in links)
    # Nothing verified is no evidence, whatever was not found wrong.
    failed = failed or not any(link.state == "verified" for link in links)
    evidence = Evidence(
        paths=tuple(str(path) for path in paths),
        outcome="failed" if failed else "verified",
        links=tuple(dict.fromkeys(links)),
    )
    return evidence, pieces


def _pieces(finds: Iterable[EvidenceFiles]) -> tuple[tuple[PublishedFile, ...], list[Link]]:
    pieces: dict[Path, PublishedFile] = {}
    links: list[Link] = []
    for found in finds:
        for manifest in found.manifests:
            if manifest not in pieces:
                pieces[manifest], more = piece_of(found.root, manifest)
                links += more
        for verdict in found.verdicts:
            model = verdict.with_name(verdict.name.removesuffix(".verdict.json") + ".tflite")
            if model.with_suffix(".json") not in found.manifests:
                text = "the manifest of the file that it judged is not there"
                links.append(Link(link="verdict", file=str(verdict), state="failed", text=text))
    return tuple(pieces.values()), links


def _records(found: EvidenceFiles, pieces: Sequence[PublishedFile]) -> tuple[set[Path], list[Link]]:
    files: set[Path] = set()
    links: list[Link] = []
    for record in found.records:
        embedded, more = embedded_links(found.root, record, pieces)
        links += more
        if embedded is not None:
            files |= listed(record, embedded)
    return files, links


def _lone(
    finds: Iterable[EvidenceFiles], pieces: Iterable[PublishedFile], spoken_for: Collection[Path]
) -> Iterator[Link]:
    """What is wrong with the .tflite files of which nothing speaks."""
    sources = {one.artifact.source_sha256 for one in pieces if one.artifact}
    for found in finds:
        described = {path.with_suffix(".tflite") for path in found.manifests}
        for model in found.models:
            if model not in described and model not in spoken_for:
                link = lone_piece(found.root, model, sources)
                if link:
                    yield link


def _overlooked(found: EvidenceFiles) -> Iterator[Link]:
    for path in found.links:
        text = "it is a symbolic link to a folder, into which nobody looked"
        yield Link(link="artifact", file=str(path), state="unchecked", text=text)


def _absent(links: Sequence[Link]) -> Iterator[Link]:
    """What was not there to be checked: an absence is not to look like a pass."""
    there = {link.link for link in links}
    for name, text in _ABSENT.items():
        if name not in there:
            yield Link(link=name, file="", state="unchecked", text=text)


def _refuse_without_evidence(found: EvidenceFiles) -> None:
    evidence = (found.manifests, found.records, found.reports, found.locks, found.verdicts)
    if any(evidence) or found.signatures:
        return
    what = "a .tflite without a manifest" if found.models else "nothing that edgeconv wrote"
    raise InputRefused(
        f"{found.given} holds {what}, so there is nothing to verify",
        hint="give what edgeconv convert published, or what edgeconv embed wrote",
    )


def _required(
    require: Collection[LinkName], links: Sequence[Link], pieces: Sequence[PublishedFile]
) -> Iterator[Link]:
    """A failure for each link that was required and not verified."""
    for name in require:
        own = [link for link in links if link.link == name]
        if name in ("manifest", "embedding", "signature"):
            missing = [link for link in own if link.state == "unchecked"]
            yield from (_missing(name, link.file) for link in missing)
            is_there = any(link.state == "verified" for link in own) or name == "manifest"
            if not is_there:
                yield _missing(name, "")
            continue
        done = {place for link in own if link.state == "verified" for place in _ends(link)}
        for model in [str(piece.model) for piece in pieces] or [""]:
            if model not in done:
                yield _missing(name, model)


def _ends(link: Link) -> tuple[str, str]:
    return link.file, link.against


def _missing(name: LinkName, file: str) -> Link:
    text = f"a verified {name} was required, and there is none"
    return Link(link=name, file=file, state="failed", text=text)
