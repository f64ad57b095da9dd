"""The evidence of `verify`: as text, as a page, and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from edgeconv.reporting.units import plain
from edgeconv.reporting.verdicts.machine import as_json, schema_of
from edgeconv.types import Evidence

if TYPE_CHECKING:
    from edgeconv.types import Link, LinkState

_WORDS: dict[LinkState, str] = {"verified": "ok", "failed": "FAIL", "unchecked": "not checked"}


def render_evidence_text(evidence: Evidence) -> str:
    """The page as text."""
    return "".join(f"{line}\n" for line in evidence_page(evidence))


def render_evidence_json(evidence: Evidence) -> str:
    """The evidence as one JSON document."""
    return as_json(msgspec.to_builtins(evidence))


def evidence_schema() -> bytes:
    """What docs/schemas/evidence.json holds."""
    return schema_of(Evidence, "edgeconv evidence")


def evidence_page(evidence: Evidence) -> list[str]:
    """Each link with what was checked against what, and what could not be checked."""
    width = max((len(link.link) for link in evidence.links), default=0)
    lines = []
    for file in dict.fromkeys(link.file for link in evidence.links):
        lines.append(plain(file) or "(all)")
        own = (link for link in evidence.links if link.file == file)
        lines += [_line(link, width) for link in own]
    counts = Counter(link.state for link in evidence.links)
    totals = [f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state]]
    return [*lines, f"{evidence.outcome}: {', '.join(totals) or 'nothing was checked'}"]


def _line(link: Link, width: int) -> str:
    against = f" ({plain(link.against)})" if link.against else ""
    return f"  {_WORDS[link.state]:11}  {link.link:{width}}  {plain(link.text)}{against}"
