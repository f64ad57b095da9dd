"""Refusing a model with findings before it is loaded, unless its user trusts the file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.errors import InputRefused
from edgeconv.source.scanning.scanner import scan_identified
from edgeconv.store.user import read_user_config
from edgeconv.types import Opening

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from edgeconv.types import Scan, SourceModel


def admit_model(
    path: str | Path,
    opening: Opening = Opening(),
    *,
    allow_code: bool = False,
    trusted: Collection[str] = (),
) -> SourceModel:
    """The model at `path`, identified, if the scan or its user admits it.

    Every command that loads a model uses this or `refuse_findings`. Raises as `source.identify` and
    `refuse_findings`.
    """
    model = source.identify(path, opening, allow_code=allow_code)
    refuse_findings(model, trusted=trusted)
    return model


def refuse_findings(
    model: SourceModel,
    *,
    trusted: Collection[str] = (),
    reads_layers: bool = False,
) -> None:
    """Raise `InputRefused` for a model that the scan refuses and the user does not trust.

    `trusted` are content hashes, as `Scan.sha256`, in addition to those in the user's
    configuration. Classes of the model's `opening` are allowed. `reads_layers` is as in `scan`.
    """
    known = frozenset(model.opening.custom_objects)
    scan = _scanned(model, known, reads_layers)
    if scan.is_refused and model.sha256 not in trusted_models(trusted):
        raise InputRefused(
            f"{model.path} has {_summary(scan)}",
            hint=_hint(scan),
        )


def trusted_models(trusted: Collection[str] = ()) -> frozenset[str]:
    """The content hashes in `trusted` and in the user's configuration. Raises `UsageError`."""
    return frozenset((*trusted, *read_user_config().trusted))


@cache
def _scanned(model: SourceModel, known: frozenset[str], reads_layers: bool) -> Scan:
    # One command loads a model several times; `model` has the hash of its content.
    return scan_identified(model, known, reads_layers=reads_layers)


def _hint(scan: Scan) -> str:
    kinds = {each.kind for each in scan.findings if each.severity == "error"}
    if scan.kind == "tflite" and "structure" in kinds:
        # Trusted or not, the parser does not read such a file.
        return "give a file that a TFLite converter wrote"
    is_code = "class" in kinds
    code = (
        "give the module that has it with --custom-objects MODULE, or export the model as a "
        "SavedModel where that code is, and convert that; or, "
    )
    export = code if is_code else ""
    return (
        f"{export}if you know who made it and what it does (edgeconv scan {scan.path}), allow "
        f"this one file with --trust-model {scan.sha256}"
    )


def _summary(scan: Scan) -> str:
    errors = [finding for finding in scan.findings if finding.severity == "error"]
    first = errors[0]
    more = f"; and {len(errors) - 1} more findings" if len(errors) > 1 else ""
    return f"{first.what}: {first.why} ({first.where}){more}"
