"""A model with findings is refused before anything loads it, unless its user trusts that file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.config.user import read_user_config
from edgeconv.errors import InputRefused
from edgeconv.source.scanning.scanner import scan_identified
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
    """The model at `path`, identified, once the scan or its user admits it.

    Every command that loads a model has it from here, or from `refuse_findings`. Raises as
    `source.identify` and `refuse_findings`.
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
    """Raise `InputRefused` for a model that the scan refuses, and that nobody trusts.

    `trusted` are content hashes, as `Scan.sha256`; those in the configuration of the user count
    too. The classes that the model's `opening` names may be in it. `reads_layers` as in `scan`.
    """
    known = frozenset(model.opening.custom_objects)
    found = _scanned(model, known, reads_layers)
    if found.is_refused and model.sha256 not in trusted_models(trusted):
        raise InputRefused(
            f"{model.path} has {_summary(found)}",
            hint=_hint(found),
        )


def trusted_models(trusted: Collection[str] = ()) -> frozenset[str]:
    """The content hashes in `trusted`, and those in the user's own configuration.

    Raises `UsageError` for one that cannot be read.
    """
    return frozenset((*trusted, *read_user_config().trusted))


@cache
def _scanned(model: SourceModel, known: frozenset[str], reads_layers: bool) -> Scan:
    # One command loads a model several times; the hash in `model` is that of its content.
    return scan_identified(model, known, reads_layers=reads_layers)


def _hint(found: Scan) -> str:
    kinds = {each.kind for each in found.findings if each.severity == "error"}
    if found.kind == "tflite" and "structure" in kinds:
        # Whoever is trusted: the parser takes no such file.
        return "give the file that a TFLite converter wrote"
    is_code = "class" in kinds
    code = (
        "give the module that has it with --custom-objects MODULE, or export the model as a "
        "SavedModel where that code is, and convert that; or, "
    )
    export = code if is_code else ""
    return (
        f"{export}if you know who made it and what it does (edgeconv scan {found.path}), allow "
        f"this one file with --trust-model {found.sha256}"
    )


def _summary(found: Scan) -> str:
    errors = [finding for finding in found.findings if finding.severity == "error"]
    first = errors[0]
    more = f"; and {len(errors) - 1} more findings" if len(errors) > 1 else ""
    return f"{first.what}: {first.why} ({first.where}){more}"
