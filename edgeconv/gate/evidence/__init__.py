"""`verify`: whether published files, their verdicts, reports and embeddings belong together."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.evidence.embedded import embedded_links, listed_files
from edgeconv.gate.evidence.files import find_files
from edgeconv.gate.evidence.published import link_of, read_published, source_links, without_manifest
from edgeconv.gate.evidence.reports import lock_links, report_links, verdict_report_links
from edgeconv.gate.evidence.signatures import signature_links
from edgeconv.types import Evidence, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from edgeconv.gate.evidence.files import EvidenceFiles
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.requests.verify import VerifyRequest
    from edgeconv.types import LinkName

# The passphrase of a key that signs.
PASSPHRASE = "EDGECONV_KEY_PASSPHRASE"
_ABSENT: dict[LinkName, str] = {
    "artifact": "no published file was found",
    "verdict": "no verdict was found",
    "report": "no report was found",
    "lock": "no lock was found",
    "embedding": "no folder of `edgeconv embed` was found",
    "signature": "nothing is signed",
}


def passphrase_of(key: str) -> str:
    """The passphrase in the environment. Raises `UsageError` without one."""
    if PASSPHRASE not in os.environ:
        raise UsageError(
            f"the key {key} has a passphrase, and there is no terminal to ask for it",
            hint=f"set {PASSPHRASE}",
        )
    return os.environ[PASSPHRASE]


def verify(request: VerifyRequest, *, passphrase: Callable[[str], str] = passphrase_of) -> Evidence:
    """Verify that published files, their verdicts, reports, locks and embeddings belong together.

    Nothing is loaded, run or fetched (except by Sigstore). `passphrase` is called with the key that
    signs, if it is encrypted. Raises `InputRefused` for a path without anything to verify,
    `UsageError` for options that do not go together, and as `sign` does.
    """
    _refuse_options(request)
    evidence, published = _evidence(request)
    if not (request.sign and evidence.ok):
        return evidence
    from edgeconv.gate.evidence.signing import Signer, sign

    signer = Signer(
        key=request.sign,
        certificates=request.trust.certificates,
        trust_config=request.trust.trust_config,
    )
    ask = cache(lambda: passphrase(request.sign))
    signed = tuple(str(sign(Path(path), published, signer, ask)) for path in request.paths)
    return replace(evidence, signed=signed)


def _refuse_options(request: VerifyRequest) -> None:
    trust, signs = request.trust, bool(request.sign)
    trusted = [bool(trust.key), bool(trust.certificates) and not signs, bool(trust.identity)]
    if not request.paths:
        raise UsageError("give the files that convert published, or that embed wrote")
    if sum(trusted) > 1:
        raise UsageError("give one of --key, --certificate and --identity")
    if signs and (trust.key or trust.identity or trust.signature):
        raise UsageError("--sign writes a signature; verify it in another run")
    if bool(trust.identity) != bool(trust.issuer):
        raise UsageError("--identity and --issuer go together")
    if trust.signature and (len(request.paths) > 1 or not any(trusted)):
        raise UsageError(
            "--signature is of one PATH, and goes with --key, --certificate or --identity"
        )


def _evidence(request: VerifyRequest) -> tuple[Evidence, tuple[PublishedFile, ...]]:
    paths, trust = request.paths, request.trust
    if request.sign:
        # They are those of the key.
        trust = replace(trust, certificates=())
    evidence = [find_files(path) for path in dict.fromkeys(map(Path, paths))]
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
    links += verdict_report_links(published, reports)
    for files in evidence:
        links += signature_links(files, published, trust, is_replaced=bool(request.sign))
        _refuse_without_evidence(files)
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
    result = Evidence(
        paths=paths,
        outcome="failed" if failed else "verified",
        links=tuple(dict.fromkeys(links)),
    )
    return result, published


def _read_all(
    evidence: Iterable[EvidenceFiles],
) -> tuple[tuple[PublishedFile, ...], list[Link]]:
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
    if any(evidence) or files.signatures:
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
        if name in ("manifest", "embedding", "signature"):
            missing = [link.file for link in own if link.state == "unchecked"]
            missing += [] if verified or name == "manifest" else [""]
        else:
            paths = {path for link in verified for path in (link.file, link.against)}
            models = [str(file.model) for file in published] or [""]
            missing = [model for model in models if model not in paths]
        text = f"a verified {name} is required and missing"
        yield from (link_of(name, file, "failed", text) for file in missing)
