"""What the scan of models says: as text, as JSON, and as SARIF for code scanning."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.text import Text

import edgeconv
from edgeconv.reporting.units import plain
from edgeconv.reporting.verdicts.machine import as_json
from edgeconv.reporting.verdicts.sarif import SCHEMA, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.reporting.layout import Page
    from edgeconv.types import Scan, ScanFinding

_LEVELS = {"error": "error", "warn": "warning"}
_RULES = {
    "operator": "An operator that is not known to compute only",
    "path": "A file that the model names",
    "asset": "A file that is read as an asset",
    "checkpoint": "A checkpoint at a place that the model chooses",
    "device": "A device of another machine",
    "function": "A function that the model calls by name",
    "class": "A class or function that is not Keras's",
    "structure": "A structure that no tool writes",
}


def render_scan_text(scans: Sequence[Scan]) -> str:
    """Each model with its findings; where, what, and why it matters."""
    return "".join(f"{line}\n" for scan in scans for line in _lines(scan))


def scan_page(scan: Scan) -> Page:
    """The same of one model, as a page."""
    return [Text(line) for line in _lines(scan)]


def _lines(scan: Scan) -> list[str]:
    said = "refused" if scan.is_refused else "nothing that reaches outside of the model"
    lines = [f"{plain(scan.path)}: {said}", f"  sha256 {scan.sha256}"]
    for found in scan.findings:
        word = "FAIL" if found.severity == "error" else "warn"
        places = f" and {found.count - 1} more places" if found.count > 1 else ""
        lines.append(f"  {word}  {plain(found.what)}: {found.why}")
        lines.append(f"        at {plain(found.where)}{places}")
    return lines


def render_scan_json(scans: Sequence[Scan]) -> str:
    """A list of all of it."""
    import msgspec

    return as_json(msgspec.to_builtins(list(scans)))


def render_scan_sarif(scans: Sequence[Scan]) -> str:
    """One run of SARIF 2.1.0; a result for each finding, and a rule for each kind of it."""
    kinds = [kind for kind in _RULES if any(f.kind == kind for s in scans for f in s.findings)]
    rules = [
        {
            "id": f"scan/{kind}",
            "shortDescription": {"text": _RULES[kind]},
            "defaultConfiguration": {"level": "error"},
        }
        for kind in kinds
    ]
    driver = {"name": "edgeconv", "version": edgeconv.__version__, "rules": rules}
    ended = 1 if any(scan.is_refused for scan in scans) else 0
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "edgeconv/scan/"},
        "invocations": [{"executionSuccessful": True, "exitCode": ended}],
        "results": [_result(scan, found, kinds) for scan in scans for found in scan.findings],
    }
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(scan: Scan, found: ScanFinding, kinds: list[str]) -> dict[str, Any]:
    identity = "\0".join((found.kind, found.where, found.what))
    digest = hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()
    return {
        "ruleId": f"scan/{found.kind}",
        "ruleIndex": kinds.index(found.kind),
        "level": _LEVELS[found.severity],
        "message": {"text": message(f"{found.what}: {found.why} ({found.where})")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": _location(scan)},
                "logicalLocations": [{"fullyQualifiedName": plain(found.where)}],
            }
        ],
        "partialFingerprints": {"finding/v1": digest},
        "properties": {"sha256": scan.sha256, "count": found.count},
    }


def _location(scan: Scan) -> dict[str, str]:
    path = Path(scan.path) / ("saved_model.pb" if scan.kind == "saved_model" else "")
    try:
        relative = path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return {"uri": "file://" + quote(str(path).encode("utf-8", "surrogateescape"))}
    uri = quote(relative.encode("utf-8", "surrogateescape"))
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}
