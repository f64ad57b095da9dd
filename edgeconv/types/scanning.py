"""What the scan of a model finds, before anything loads it."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.checks import Severity
from edgeconv.types.model import FrozenStruct, Result, SourceKind

FindingKind = Literal[
    "operator", "path", "asset", "checkpoint", "device", "function", "class", "structure"
]


class ScanFinding(FrozenStruct, kw_only=True, frozen=True):
    """Something in a model that loading or running it should not meet.

    `where` is the place in the model (a node, a layer, a file of it), `what` is there, `why` is
    what it could do. `count` places of the model have the same; `where` is the first. A model
    with an "error" is refused; a "warn" is only told.
    """

    kind: FindingKind
    where: str
    what: str
    why: str
    severity: Severity = "error"
    count: int = 1


class Scan(Result, kw_only=True, frozen=True):
    """What the scan says of one model. `sha256` is the hash that `trusted` lists name."""

    path: str
    kind: SourceKind
    sha256: str
    findings: tuple[ScanFinding, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether no command loads the model unless it is trusted."""
        return any(finding.severity == "error" for finding in self.findings)
