"""The signatures of published files: what was signed, by whom, and with which verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.files import SIGNATURE
from edgeconv.gate.evidence.published import link_of
from edgeconv.gate.evidence.reading import LARGEST_DOCUMENT_BYTES, Root, read_within
from edgeconv.gate.evidence.statement import (
    Statement,
    difference,
    payload_of,
    statement_of,
    verdict_links,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.evidence.files import EvidenceFiles
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.types import Link, LinkState, Trust

_SUFFIX = ".sig"
_UNTRUSTED = (
    "the files are those that were signed; the signer was not checked: --key, --certificate"
)


def signature_of(signed: Path) -> Path:
    """The default path of the signature of a directory or file."""
    return signed / SIGNATURE if signed.is_dir() else Path(f"{signed}{_SUFFIX}")


def signature_links(
    files: EvidenceFiles,
    published: Sequence[PublishedFile],
    trust: Trust,
    *,
    is_replaced: bool = False,
) -> Iterator[Link]:
    """The links of the signatures at a PATH; with `trust`, also of what is not signed.

    `is_replaced`: the PATH is to be signed, so its present signature does not count.
    """
    paths = {path: _signed_by(path) for path in files.signatures}
    root = files.root
    if is_replaced:
        paths.pop(signature_of(files.path), None)
    if trust.signature:
        root = Root(Path(trust.signature).parent)
        paths = {Path(trust.signature): files.path}
    signatures = [_SignatureFile.read(root, path, signed, trust) for path, signed in paths.items()]
    differences = {each.path: each.difference(files.root) for each in signatures}
    covered = {each.signed for each in signatures if each.by and not differences[each.path]}
    for each in signatures:
        is_covered = each.signed in covered or not covered.isdisjoint(each.signed.parents)
        yield each.link(differences[each.path], is_covered=is_covered)
        if each.statement and not differences[each.path]:
            for link in verdict_links(each.statement, each.signed, published):
                # Without a trusted signer, anybody may have written the verdict.
                is_claim = link.state == "verified" and not each.by
                yield msgspec.structs.replace(link, state="unchecked") if is_claim else link
    if trust.is_given:
        own = [file.model for file in published if file.root is files.root]
        for path in (*own, *files.records, *files.reports, *files.locks):
            if path not in covered and covered.isdisjoint(path.parents):
                text = "it is not signed by a signer that you trust"
                yield link_of("signature", path, "failed", text)


def _signed_by(signature: Path) -> Path:
    if signature.name == SIGNATURE:
        return signature.parent
    return signature.with_name(signature.name.removesuffix(_SUFFIX))


class _SignatureFile(msgspec.Struct, frozen=True, kw_only=True):
    """A signature; `by` is the trusted signer, "" without; `refused` is why it does not count."""

    path: Path
    signed: Path
    statement: Statement | None = None
    by: str = ""
    refused: str = ""

    @classmethod
    def read(cls, root: Root, path: Path, signed: Path, trust: Trust) -> _SignatureFile:
        """Read it, and with `trust` verify the signer."""
        try:
            bundle = read_within(root, path, LARGEST_DOCUMENT_BYTES)
            payload, by = payload_of(bundle, path), ""
            if trust.is_given:
                from edgeconv.gate.evidence.signing import verified_payload

                payload, by = verified_payload(bundle, path, trust)
            statement = statement_of(payload, path)
        except InputRefused as error:
            return cls(path=path, signed=signed, refused=error.message)
        return cls(path=path, signed=signed, statement=statement, by=by)

    def difference(self, root: Root) -> str:
        """How the files differ from the signed ones; "" where they do not."""
        if self.statement is None:
            return ""
        try:
            return difference(self.statement, root, self.signed, self.path)
        except InputRefused as error:
            return error.message

    def link(self, changed: str, *, is_covered: bool) -> Link:
        """Its link. `is_covered`: a trusted signer signed the same."""
        state: LinkState = "failed"
        text = self.refused or changed
        if self.refused and is_covered:
            state = "unchecked"
        elif not text:
            state = "verified" if self.by else "unchecked"
            text = f"signed by {self.by}" if self.by else _UNTRUSTED
        return link_of("signature", self.signed, state, text, self.path)
