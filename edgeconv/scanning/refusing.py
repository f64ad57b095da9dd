"""A model with findings is refused before anything loads it, unless its user trusts that file."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from edgeconv import source
from edgeconv.errors import InputRefused, UsageError
from edgeconv.nouns import Opening
from edgeconv.scanning.scanner import scan_identified

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from edgeconv.nouns import Scan, SourceModel

_TRUSTED = "trusted"
_SHA256_CHARACTERS = 64


def admitted(
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
    if found.is_refused and model.sha256 not in {*trusted, *trusted_by_user()}:
        raise InputRefused(
            f"{model.path} has {_summary(found)}",
            hint=_hint(found),
        )


def trusted_by_user() -> frozenset[str]:
    """The content hashes that `trusted` lists in the user's own configuration.

    Raises `UsageError` for one that cannot be read.
    """
    path = user_configuration()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        hashes = tomllib.loads(text).get(_TRUSTED, [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    if not isinstance(hashes, list) or not all(is_sha256(each) for each in hashes):
        raise UsageError(
            f"{path}: {_TRUSTED} is not a list of sha256 hashes",
            hint=f'{_TRUSTED} = ["..."], as `edgeconv scan` shows them',
        )
    return frozenset(hashes)


def user_configuration() -> Path:
    """The configuration of whoever runs edgeconv, which no project can change."""
    from platformdirs import user_config_path

    return user_config_path("edgeconv") / "config.toml"


def is_sha256(text: object) -> bool:
    """Whether a text is a sha256 as edgeconv writes it: 64 digits, lower case."""
    return (
        isinstance(text, str)
        and len(text) == _SHA256_CHARACTERS
        and set(text) <= set("0123456789abcdef")
    )


@cache
def _scanned(model: SourceModel, known: frozenset[str], reads_layers: bool) -> Scan:
    # One command loads a model several times; the hash in `model` is that of its content.
    return scan_identified(model, known, reads_layers=reads_layers)


def _hint(found: Scan) -> str:
    is_code = any(each.severity == "error" and each.kind == "class" for each in found.findings)
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
