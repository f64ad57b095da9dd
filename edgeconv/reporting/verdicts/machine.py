"""JSON: the noun `Checked`, and what the formats made of JSON are written with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.processes.escaping import encodable

if TYPE_CHECKING:
    from edgeconv.types import Check, Checked, Finding


def render_json(checked: Checked) -> str:
    """All of it; what is NaN becomes null."""
    return as_json(msgspec.to_builtins(checked))


def as_json(value: Any) -> str:
    """A document of plain values, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(encodable(value)), indent=1).decode() + "\n"


def fingerprint(check: Check, finding: Finding) -> str:
    """A hash of what is judged, not of what came of it: the same for the next run's finding."""
    parts = (check.name, finding.model, finding.limit, finding.reference, finding.subject)
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()
