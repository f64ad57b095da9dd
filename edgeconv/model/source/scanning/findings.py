"""The findings of one scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.types import ScanFinding
from edgeconv.types.words import shortened

if TYPE_CHECKING:
    from edgeconv.types.looking import FindingKind

# A hostile model may have a million.
_MOST = 1000
# Names in a hostile model may be megabytes.
_MOST_CHARACTERS = 300


class Findings:
    """Collects findings, and counts equal ones."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, str], ScanFinding] = {}

    def add(
        self, kind: FindingKind, where: str, what: str, why: str, *, is_error: bool = True
    ) -> None:
        """Add a finding."""
        what = shortened(what, _MOST_CHARACTERS)
        key = (kind, what, why)
        known = self._findings.get(key)
        if known is not None:
            self._findings[key] = replace(known, count=known.count + 1)
        elif len(self._findings) < _MOST or (is_error and not self.has_error):
            self._findings[key] = ScanFinding(
                kind=kind,
                where=shortened(where, _MOST_CHARACTERS),
                what=what,
                why=why,
                severity="error" if is_error else "warn",
            )

    @property
    def has_error(self) -> bool:
        """Whether the model is refused."""
        return any(finding.severity == "error" for finding in self._findings.values())

    def all(self) -> tuple[ScanFinding, ...]:
        """All of them, errors first."""
        return tuple(sorted(self._findings.values(), key=lambda finding: finding.severity))
