"""The signatures beside published files: what was signed, by whom, and with which verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.gate.evidence.files import SIGNATURE
from edgeconv.gate.evidence.reading import LARGEST_DOCUMENT_BYTES, Root, read_within
from edgeconv.gate.evidence.statement import (
    Statement,
    difference,
    payload_of,
    statement_of,
    verdict_links,
)
from edgeconv.types import Link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.evidence.files import EvidenceFiles
    from edgeconv.gate.evidence.published import PublishedFile
    from edgeconv.types import LinkState

_SUFFIX = ".sig"
_UNTRUSTED = "the files are those that were signed; by whom was not checked: --key, --certificate"


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Whose signatures count: by a public `key`, a chain of `certificates`, or at Sigstore.

    For Sigstore, `identity` is who signed and `issuer` who vouched for that; `trust_config` is a
    file with other roots than Sigstore's own. `signature` is where the signature is, "" for
    beside what it signs.
    """

    key: str = ""
    certificates: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""
    trust_config: str = ""
    signature: str = ""

    @property
    def is_given(self) -> bool:
        """Whether anybody is trusted, so that everything has to be signed."""
        return bool(self.key or self.certificates or self.identity)


def signature_of(signed: Path) -> Path:
    """Where the signature of a directory or file is, unless it is told otherwise."""
    return signed / SIGNATURE if signed.is_dir() else Path(f"{signed}{_SUFFIX}")


def signature_links(
    found: EvidenceFiles,
    pieces: Sequence[PublishedFile],
    trust: Trust,
    *,
    is_replaced: bool = False,
) -> Iterator[Link]:
    """What the signatures at a PATH say; with `trust`, also what is not signed.

    `is_replaced`: the PATH is about to be signed, so the signature that it has does not count.
    """
    places = {one: _signed_by(one) for one in found.signatures}
    root = found.root
    if is_replaced:
        places.pop(signature_of(found.given), None)
    if trust.signature:
        root = Root(Path(trust.signature).parent)
        places = {Path(trust.signature): found.given}
    read = [_SignatureFile.read(root, place, signed, trust) for place, signed in places.items()]
    differences = {one.place: one.difference(found.root) for one in read}
    covered = {one.signed for one in read if one.by and not differences[one.place]}
    for one in read:
        is_covered = one.signed in covered or not covered.isdisjoint(one.signed.parents)
        yield one.link(differences[one.place], is_covered=is_covered)
        if one.statement and not differences[one.place]:
            for link in verdict_links(one.statement, one.signed, pieces):
                # Anybody can write a verdict into a statement.
                is_claim = link.state == "verified" and not one.by
                yield msgspec.structs.replace(link, state="unchecked") if is_claim else link
    if trust.is_given:
        own = [piece.model for piece in pieces if piece.root is found.root]
        for path in (*own, *found.records, *found.reports, *found.locks):
            if path not in covered and covered.isdisjoint(path.parents):
                text = "it is not signed by whom you trust"
                yield Link(link="signature", file=str(path), state="failed", text=text)


def _signed_by(signature: Path) -> Path:
    if signature.name == SIGNATURE:
        return signature.parent
    return signature.with_name(signature.name.removesuffix(_SUFFIX))


class _SignatureFile(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that was read: `by` is who signed, "" where that was not checked or is nobody
    who is trusted; `refused` says why it, or its signer, is not taken.
    """

    place: Path
    signed: Path
    statement: Statement | None = None
    by: str = ""
    refused: str = ""

    @classmethod
    def read(cls, root: Root, place: Path, signed: Path, trust: Trust) -> _SignatureFile:
        """Read it, and with `trust` find out who signed."""
        try:
            bundle = read_within(root, place, LARGEST_DOCUMENT_BYTES)
            payload, by = payload_of(bundle, place), ""
            if trust.is_given:
                from edgeconv.gate.evidence.signing import verified_payload

                payload, by = verified_payload(bundle, place, trust)
            statement = statement_of(payload, place)
        except InputRefused as error:
            return cls(place=place, signed=signed, refused=error.message)
        return cls(place=place, signed=signed, statement=statement, by=by)

    def difference(self, root: Root) -> str:
        """How the files differ from those that were signed; "" where they do not."""
        if self.statement is None:
            return ""
        try:
            return difference(self.statement, root, self.signed, self.place)
        except InputRefused as error:
            return error.message

    def link(self, changed: str, *, is_covered: bool) -> Link:
        """What it says. `is_covered`: the same is signed by somebody who is trusted."""
        state: LinkState = "failed"
        text = self.refused or changed
        if self.refused and is_covered:
            state = "unchecked"
        elif not text:
            state = "verified" if self.by else "unchecked"
            text = f"signed by {self.by}" if self.by else _UNTRUSTED
        return Link(
            link="signature",
            file=str(self.signed),
            against=str(self.place),
            state=state,
            text=text,
        )
