"""The findings of a scan: as text, as JSON, and as SARIF for code scanning."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from edgeconv.reporting.units import plain
from edgeconv.reporting.verdicts.machine import as_json, message, sarif_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Scan, ScanFinding

_LEVELS = {"error": "error", "warn": "warning"}
_RULES = {
    "operator": "An operator that may do more than compute",
    "path": "A file that the model names",
    "asset": "A file that the model reads as an asset",
    "checkpoint": "A checkpoint at a path that the model chooses",
    "device": "A device on another machine",
    "function": "A function that the model calls by name",
    "class": "A class or function that is not Keras's",
    "structure": "A structure that no tool writes",
}


def render_scan_text(scans: Sequence[Scan]) -> str:
    """The page of each model."""
    return "".join(f"{line}\n" for scan in scans for line in scan_page(scan))


def scan_page(scan: Scan) -> list[str]:
    """A model with its findings: what, why it matters, and where."""
    outcome = "refused" if scan.is_refused else "nothing that reaches outside of the model"
    lines = [f"{plain(scan.path)}: {outcome}", f"  sha256 {scan.sha256}"]
    for finding in scan.findings:
        word = "FAIL" if finding.severity == "error" else "warn"
        places = f" and {finding.count - 1} more places" if finding.count > 1 else ""
        lines.append(f"  {word}  {plain(finding.what)}: {finding.why}")
        lines.append(f"        at {plain(finding.where)}{places}")
    return lines


def render_scan_json(scans: Sequence[Scan]) -> str:
    """A JSON list of the scans."""
    return as_json(msgspec.to_builtins(list(scans)))


def render_scan_sarif(scans: Sequence[Scan]) -> str:
    """One run of SARIF 2.1.0; a result for each finding, and a rule for each kind of finding."""
    kinds = [kind for kind in _RULES if any(f.kind == kind for s in scans for f in s.findings)]
    rules = [
        {
            "id": f"scan/{kind}",
            "shortDescription": {"text": _RULES[kind]},
            "defaultConfiguration": {"level": "error"},
        }
        for kind in kinds
    ]
    results = [_result(scan, finding, kinds) for scan in scans for finding in scan.findings]
    exit_code = 1 if any(scan.is_refused for scan in scans) else 0
    return sarif_document(rules, "edgeconv/scan/", exit_code, results)


def _result(scan: Scan, finding: ScanFinding, kinds: list[str]) -> dict[str, Any]:
    identity = "\0".join((finding.kind, finding.where, finding.what))
    digest = hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()
    return {
        "ruleId": f"scan/{finding.kind}",
        "ruleIndex": kinds.index(finding.kind),
        "level": _LEVELS[finding.severity],
        "message": {"text": message(f"{finding.what}: {finding.why} ({finding.where})")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": _location(scan)},
                "logicalLocations": [{"fullyQualifiedName": plain(finding.where)}],
            }
        ],
        "partialFingerprints": {"finding/v1": digest},
        "properties": {"sha256": scan.sha256, "count": finding.count},
    }


def _location(scan: Scan) -> dict[str, str]:
    path = Path(scan.path) / ("saved_model.pb" if scan.kind == "saved_model" else "")
    try:
        relative = path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return {"uri": "file://" + quote(str(path).encode("utf-8", "surrogateescape"))}
    uri = quote(relative.encode("utf-8", "surrogateescape"))
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}
