"""From a path to a `Scan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.source.kinds import unreadable
from edgeconv.source.scanning.findings import Findings
from edgeconv.types import Scan, ScanFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.types import SourceModel


def scan(
    path: str | Path, *, custom_objects: Iterable[str] = (), reads_layers: bool = False
) -> Scan:
    """What the model at `path` would touch outside of itself when it is loaded and run.

    `path` is a SavedModel directory (or that of its versions), a .keras, .h5 or .hdf5 file, or a
    .tflite file. `custom_objects` are texts MODULE or MODULE:NAME, whose classes a Keras file may
    have. `reads_layers`: tf_keras is to make the layers of a SavedModel again, to train them on.
    Raises `InputRefused` for what is not a model, or one that is damaged.
    """
    model = source.identify(path)
    return scan_identified(model, frozenset(custom_objects), reads_layers=reads_layers)


def scan_identified(model: SourceModel, known: frozenset[str], *, reads_layers: bool) -> Scan:
    """What `scan` gives, of a model that is identified."""
    path = Path(model.path)
    try:
        findings = _findings(path, model, known, reads_layers=reads_layers)
    except OSError as error:
        raise unreadable(path, error) from error
    return Scan(path=model.path, kind=model.kind, sha256=model.sha256, findings=findings)


def _findings(
    path: Path, model: SourceModel, known: frozenset[str], *, reads_layers: bool
) -> tuple[ScanFinding, ...]:
    if model.kind in ("keras", "hdf5"):
        from edgeconv.source.scanning.keras_files import scan_keras

        return scan_keras(path, is_archive=model.kind == "keras", known=known)
    findings = Findings()
    if model.kind == "saved_model":
        from edgeconv.source.scanning.saved_model import scan_saved_model

        scan_saved_model(path, findings, known, reads_layers=reads_layers)
    else:
        from edgeconv.source.scanning.tflite import scan_tflite

        scan_tflite(path, findings)
    return findings.all()
