"""The verification of published files against everything that belongs to them."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.checks import LastCheck
from edgeconv.types.model import Noun, Result

LinkName = Literal[
    "artifact", "manifest", "source", "verdict", "report", "lock", "embedding", "signature"
]
LINK_NAMES: tuple[LinkName, ...] = (
    *("artifact", "manifest", "source", "verdict", "report", "lock", "embedding", "signature"),
)
LinkState = Literal["verified", "failed", "unchecked"]


class Link(Noun, kw_only=True, frozen=True):
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


class SignedArtifact(Noun, kw_only=True, frozen=True):
    """A .tflite in a signed statement, with the verdict of its last check; None without one.

    `file` is relative to what was signed, "." for a file that was signed alone.
    """

    file: str
    sha256: str
    verdict: LastCheck | None = None


class SignedEvidence(Noun, kw_only=True, frozen=True):
    """What edgeconv adds to the statement of a signature, as its predicate's field `edgeconv`."""

    format: Literal[1] = 1
    artifacts: tuple[SignedArtifact, ...]
