"""The verification of published files against everything that belongs to them."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.checks import LastCheck
from edgeconv.types.model import FrozenStruct, Result

LinkName = Literal[
    "artifact", "manifest", "source", "verdict", "report", "lock", "embedding", "signature"
]
LINK_NAMES: tuple[LinkName, ...] = (
    *("artifact", "manifest", "source", "verdict", "report", "lock", "embedding", "signature"),
)
LinkState = Literal["verified", "failed", "unchecked"]


class Trust(FrozenStruct, frozen=True, kw_only=True):
    """Whose signatures count: by a public `key`, a chain of `certificates`, or Sigstore.

    For Sigstore, `identity` is the signer and `issuer` vouches for it; `trust_config` is a file
    with other roots than Sigstore's. `signature` is the path of the signature, by default next to
    what it signs.
    """

    key: str = ""
    certificates: tuple[str, ...] = ()
    identity: str = ""
    issuer: str = ""
    trust_config: str = ""
    signature: str = ""

    @property
    def is_given(self) -> bool:
        """Whether a signer is trusted, so that everything must be signed."""
        return bool(self.key or self.certificates or self.identity)


class Link(FrozenStruct, kw_only=True, frozen=True):
    """The verification of one file against another.

    `against` is "" where that is the file's checksum, or where the other file is missing. `text`
    describes the result. "unchecked" is not a pass: `text` says what was missing.
    """

    link: LinkName
    file: str
    state: LinkState
    text: str
    against: str = ""


class Evidence(Result, kw_only=True, frozen=True):
    """The result of `verify` on some files and folders.

    "failed" where any link failed, or one that was required was not verified. `signed` are the
    signatures that were written.
    """

    format: Literal[1] = 1
    paths: tuple[str, ...]
    outcome: Literal["verified", "failed"]
    links: tuple[Link, ...]
    signed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.outcome == "verified"


class SignedArtifact(FrozenStruct, kw_only=True, frozen=True):
    """A .tflite in a signed statement, with the verdict of its last check; None without one.

    `file` is relative to what was signed, "." for a file that was signed alone.
    """

    file: str
    sha256: str
    verdict: LastCheck | None = None


class SignedEvidence(FrozenStruct, kw_only=True, frozen=True):
    """What edgeconv adds to the statement of a signature, as its predicate's field `edgeconv`."""

    format: Literal[1] = 1
    artifacts: tuple[SignedArtifact, ...]
