"""`verify`: whether published files, their verdicts, reports and embeddings belong together."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from edgeconv.plugins.evidence.files import EvidenceFiles, find_files
from edgeconv.plugins.evidence.links import (
    PublishedFile,
    embedded_links,
    link_of,
    listed_files,
    lock_links,
    read_published,
    report_links,
    source_links,
    verdict_report_links,
    without_manifest,
)
from edgeconv.types import Evidence, Link, LinkName
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.requests.looking import VerifyRequest

_ABSENT: dict[LinkName, str] = {
    "artifact": "no published file was found",
    "verdict": "no verdict was found",
    "report": "no report was found",
    "lock": "none of the paths is or has a lock",
    "embedding": "none of the paths is a folder of `edgeconv embed`",
}


def verify(request: VerifyRequest) -> Evidence:
    """Verify that published files, their verdicts, reports, locks and embeddings belong together.

    Nothing is loaded, run or fetched. Raises `InputRefused` for a path without anything to verify,
    and `UsageError` without a path.
    """
    if not request.paths:
        raise UsageError("give the files that convert published, or that embed wrote")
    evidence = [find_files(path) for path in dict.fromkeys(map(Path, request.paths))]
    published, links = _read_all(evidence)
    embedded: set[Path] = set()
    for files in evidence:
        for record in files.records:
            content, further = embedded_links(files.root, record, published)
            links += further
            if content is not None:
                embedded |= listed_files(record, content)
    links += _without_manifests(evidence, published, embedded)
    links += source_links(published, Path(request.source) if request.source else None)
    reports: dict[str, Path] = {}
    for files in evidence:
        hashes, further = report_links(files, published)
        reports |= hashes
        links += [*further, *lock_links(files, published)]
        for path in files.links:
            text = "it is a symbolic link to a folder, which is not followed"
            links.append(link_of("artifact", path, "unchecked", text))
        _refuse_without_evidence(files)
    links += verdict_report_links(published, reports)
    present = {link.link for link in links}
    # An absence must not look like a pass.
    links += [
        link_of(name, "", "unchecked", text)
        for name, text in _ABSENT.items()
        if name not in present
    ]
    links += _required(request.require, links, published)
    failed = any(link.state == "failed" for link in links)
    failed = failed or not any(link.state == "verified" for link in links)
    return Evidence(
        paths=request.paths,
        outcome="failed" if failed else "verified",
        links=tuple(dict.fromkeys(links)),
    )


def _read_all(evidence: Iterable[EvidenceFiles]) -> tuple[tuple[PublishedFile, ...], list[Link]]:
    published: dict[Path, PublishedFile] = {}
    links: list[Link] = []
    for files in evidence:
        for manifest in files.manifests:
            if manifest not in published:
                published[manifest], further = read_published(files.root, manifest)
                links += further
        for verdict in files.verdicts:
            manifest = verdict.with_name(verdict.name.removesuffix(".verdict.json") + ".json")
            if manifest not in files.manifests:
                text = "the manifest of the checked file is missing"
                links.append(link_of("verdict", verdict, "failed", text))
    return tuple(published.values()), links


def _without_manifests(
    evidence: Iterable[EvidenceFiles],
    published: Iterable[PublishedFile],
    embedded: Collection[Path],
) -> Iterator[Link]:
    """The links of .tflite files that no manifest, record or source accounts for."""
    sources = {file.artifact.source_sha256 for file in published if file.artifact}
    for files in evidence:
        described = {path.with_suffix(".tflite") for path in files.manifests}
        for model in files.models:
            if model not in described and model not in embedded:
                link = without_manifest(files.root, model, sources)
                if link:
                    yield link


def _refuse_without_evidence(files: EvidenceFiles) -> None:
    evidence = (files.manifests, files.records, files.reports, files.locks, files.verdicts)
    if any(evidence):
        return
    content = "a .tflite without a manifest" if files.models else "no file of edgeconv"
    raise InputRefused(
        f"{files.path} contains {content}, so there is nothing to verify",
        hint="give what edgeconv convert published, or what edgeconv embed wrote",
    )


def _required(
    require: Collection[LinkName], links: Sequence[Link], published: Sequence[PublishedFile]
) -> Iterator[Link]:
    """A failure for each required link that is not verified."""
    for name in require:
        own = [link for link in links if link.link == name]
        verified = [link for link in own if link.state == "verified"]
        if name in ("manifest", "embedding"):
            missing = [link.file for link in own if link.state == "unchecked"]
            missing += [] if verified or name == "manifest" else [""]
        else:
            paths = {path for link in verified for path in (link.file, link.against)}
            models = [str(file.model) for file in published] or [""]
            missing = [model for model in models if model not in paths]
        text = f"a verified {name} is required and missing"
        yield from (link_of(name, file, "failed", text) for file in missing)
