"""Whether the files with the values of a SavedModel's variables exist."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2", "AutoReloadVariable"})
# Without one of these, variables are set by the graph itself.
_RESTORES = frozenset({"Restore", "RestoreSlice", "RestoreV2"})
_DATA = re.compile(r"variables\.data-\d{5}-of-(\d{5})")
# Checkpoints of the first TensorFlow are one file, or several of these.
_FIRST_FORMAT = re.compile(r"variables(-\d{5}-of-\d{5})?")
_HINT = (
    "copy the whole directory again, with variables/ in it; where it comes from Git, see whether "
    "a .gitignore leaves it out: git check-ignore -v "
)


def refuse_missing_variables(directory: Path, operators: Collection[str]) -> None:
    """Raise `InputRefused` where the graph restores variables, and their files are missing.

    `operators` are the names of those in the graph and its functions.
    """
    if _VARIABLES.isdisjoint(operators) or _RESTORES.isdisjoint(operators):
        return
    folder = directory / "variables"
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if any(map(_FIRST_FORMAT.fullmatch, names)):
        return
    if missing := _missing(names):
        raise InputRefused(
            f"{directory} lacks the values of its variables: "
            + (f"variables/{missing} is missing" if names else "variables/ is missing or empty"),
            hint=f"{_HINT}{folder / missing}",
        )


def _missing(names: set[str]) -> str:
    """The first missing file of a checkpoint, or ""."""
    if "variables.index" not in names:
        return "variables.index"
    shards = [match for name in names if (match := _DATA.fullmatch(name))]
    if not shards:
        return "variables.data-00000-of-00001"
    total = shards[0][1]
    expected = (f"variables.data-{number:05}-of-{total}" for number in range(int(total)))
    return next((name for name in expected if name not in names), "")
