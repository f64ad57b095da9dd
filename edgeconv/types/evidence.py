"""The verification of published files against everything that belongs to them."""

from __future__ import annotations

from typing import Literal, get_args

from edgeconv.types.model import FrozenStruct, Result

LinkName = Literal["artifact", "manifest", "source", "verdict", "report", "lock", "embedding"]
LINK_NAMES: tuple[LinkName, ...] = get_args(LinkName)
LinkState = Literal["verified", "failed", "unchecked"]


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

    "failed" where any link failed, or one that was required was not verified.
    """

    format: Literal[1] = 1
    paths: tuple[str, ...]
    outcome: Literal["verified", "failed"]
    links: tuple[Link, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.outcome == "verified"
