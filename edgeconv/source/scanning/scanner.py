"""From a path to a `Scan`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.source.kinds import find_model, unreadable
from edgeconv.source.scanning.findings import Findings
from edgeconv.types import Scan, ScanFinding

if TYPE_CHECKING:
    from edgeconv.requests.looking import ScanRequest
    from edgeconv.types import SourceKind, SourceModel


def scan(request: ScanRequest) -> Scan:
    """What a model would access outside of itself when it is loaded and run.

    Raises `InputRefused` for what is not a model, or a damaged one.
    """
    location = find_model(request.path)
    known = frozenset(request.custom_objects)
    # Hashing in another thread leaves Python's lock to the scan.
    with ThreadPoolExecutor(1) as pool:
        identifying = pool.submit(source.identify, request.path)
        findings = _findings(location.path, location.kind, known, reads_layers=request.reads_layers)
    return _scan(identifying.result(), findings)


def scan_identified(model: SourceModel, known: frozenset[str], *, reads_layers: bool) -> Scan:
    """`scan` of an identified model."""
    return _scan(model, _findings(Path(model.path), model.kind, known, reads_layers=reads_layers))


def _scan(model: SourceModel, findings: tuple[ScanFinding, ...]) -> Scan:
    return Scan(path=model.path, kind=model.kind, sha256=model.sha256, findings=findings)


def _findings(
    path: Path, kind: SourceKind, known: frozenset[str], *, reads_layers: bool
) -> tuple[ScanFinding, ...]:
    findings = Findings()
    try:
        if kind in ("keras", "hdf5"):
            from edgeconv.source.scanning.keras_files import scan_keras

            return scan_keras(path, is_archive=kind == "keras", known=known)
        if kind == "saved_model":
            from edgeconv.source.scanning.saved_model import scan_saved_model

            scan_saved_model(path, findings, known, reads_layers=reads_layers)
        else:
            from edgeconv.source.scanning.tflite import scan_tflite

            scan_tflite(path, findings)
    except OSError as error:
        raise unreadable(path, error) from error
    return findings.all()
