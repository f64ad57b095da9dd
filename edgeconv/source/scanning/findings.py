"""The findings of one scan, while it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.types import ScanFinding

if TYPE_CHECKING:
    from edgeconv.types.scanning import FindingKind

# A hostile model may have a million; nobody reads more than these.
_MOST = 1000
# Names in a model are anybody's, and may be megabytes.
_MOST_CHARACTERS = 300


class Findings:
    """Collects findings; the same thing found again is counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], ScanFinding] = {}

    def add(
        self, kind: FindingKind, where: str, what: str, why: str, *, is_error: bool = True
    ) -> None:
        """One more finding."""
        what = shortened(what)
        key = (kind, what, why)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + 1)
        elif len(self._found) < _MOST or (is_error and not self.has_error):
            self._found[key] = ScanFinding(
                kind=kind,
                where=shortened(where),
                what=what,
                why=why,
                severity="error" if is_error else "warn",
            )

    @property
    def has_error(self) -> bool:
        """Whether the model is refused already."""
        return any(finding.severity == "error" for finding in self._found.values())

    def all(self) -> tuple[ScanFinding, ...]:
        """All of them, errors first."""
        return tuple(sorted(self._found.values(), key=lambda finding: finding.severity))


def shortened(text: str) -> str:
    """`text` cut to what a person can read."""
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
