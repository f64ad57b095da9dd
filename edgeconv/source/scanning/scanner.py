"""From a path to a `Scan`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.errors import EdgeconvError
from edgeconv.source.kinds import find_model, unreadable
from edgeconv.source.scanning.findings import Findings
from edgeconv.types import Scan, ScanFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.types import SourceKind, SourceModel


def scan(
    path: str | Path, *, custom_objects: Iterable[str] = (), reads_layers: bool = False
) -> Scan:
    """What the model at `path` would touch outside of itself when it is loaded and run.

    `path` is a SavedModel directory (or that of its versions), a .keras, .h5 or .hdf5 file, or a
    .tflite file. `custom_objects` are texts MODULE or MODULE:NAME, whose classes a Keras file may
    have. `reads_layers`: tf_keras is to make the layers of a SavedModel again, to train them on.
    Raises `InputRefused` for what is not a model, or one that is damaged.
    """
    found = find_model(path)
    with _Identifying(path) as identifying:
        known = frozenset(custom_objects)
        findings = _findings(found.path, found.kind, known, reads_layers=reads_layers)
    return _scan(identifying.model(), findings)


def scan_identified(model: SourceModel, known: frozenset[str], *, reads_layers: bool) -> Scan:
    """What `scan` gives, of a model that is identified."""
    path = Path(model.path)
    return _scan(model, _findings(path, model.kind, known, reads_layers=reads_layers))


class _Identifying:
    """A model is hashed in another thread, which leaves Python's lock to the walk through it."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._found: SourceModel | EdgeconvError | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Identifying:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._found = source.identify(self._path)
        except EdgeconvError as error:
            self._found = error

    def model(self) -> SourceModel:
        """The model. Raises what `source.identify` does."""
        if isinstance(self._found, EdgeconvError):
            raise self._found
        assert self._found is not None
        return self._found


def _scan(model: SourceModel, findings: tuple[ScanFinding, ...]) -> Scan:
    return Scan(path=model.path, kind=model.kind, sha256=model.sha256, findings=findings)


def _findings(
    path: Path, kind: SourceKind, known: frozenset[str], *, reads_layers: bool
) -> tuple[ScanFinding, ...]:
    try:
        return _looked_at(path, kind, known, reads_layers=reads_layers)
    except OSError as error:
        raise unreadable(path, error) from error


def _looked_at(
    path: Path, kind: SourceKind, known: frozenset[str], *, reads_layers: bool
) -> tuple[ScanFinding, ...]:
    if kind in ("keras", "hdf5"):
        from edgeconv.source.scanning.keras_files import scan_keras

        return scan_keras(path, is_archive=kind == "keras", known=known)
    findings = Findings()
    if kind == "saved_model":
        from edgeconv.source.scanning.saved_model import scan_saved_model

        scan_saved_model(path, findings, known, reads_layers=reads_layers)
    else:
        from edgeconv.source.scanning.tflite import scan_tflite

        scan_tflite(path, findings)
    return findings.all()
