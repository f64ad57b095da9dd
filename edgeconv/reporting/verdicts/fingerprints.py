"""What tells one finding from all others, from run to run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeconv.types import Check, Finding


def fingerprint(check: Check, finding: Finding) -> str:
    """A hash of what is judged, not of what came of it: the same for the next run's finding."""
    parts = (check.name, finding.model, finding.limit, finding.reference, finding.subject)
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()
