"""A recipe as a configuration file, from which `edgeconv convert` makes the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.config.toml_text import toml_value
from edgeconv.data.custom import is_path
from edgeconv.types import CALIBRATED

if TYPE_CHECKING:
    from edgeconv.tuning.asked import Wanted
    from edgeconv.types import Opening, Recipe

_WITHOUT_METHODS = ("float32", "float16")


def recipe_text(
    recipe: Recipe, wanted: Wanted, opening: Opening, calibration: str, preprocess: str
) -> str:
    """The [convert] table of a recipe, in TOML.

    `calibration` is the SOURCE as it is to be found from the folder of the file, `preprocess`
    the steps. What is by default is left away.
    """
    values: dict[str, object] = {
        "to": recipe.name,
        "engine": recipe.engine,
        "calibration": calibration,
    }
    if preprocess != "none":
        values["preprocess"] = preprocess
    if recipe.name in CALIBRATED:
        values["calibration-range"] = recipe.calibration_range
        values["allow-float"] = ",".join(recipe.allow_float)
    if recipe.name not in _WITHOUT_METHODS:
        values["methods"] = ",".join(recipe.methods) or "none"
    if recipe.layers:
        values["layer"] = [f"{rule.pattern}={rule.precision}" for rule in recipe.layers]
    if wanted.signature:
        values["signature"] = wanted.signature
    if wanted.batch is not None:
        values["batch"] = wanted.batch
    if opening.tags:
        values["tag"] = ",".join(opening.tags)
    if opening.custom_objects:
        # From wherever the file is; a dotted name is looked for where edgeconv is run.
        values["custom-objects"] = [
            str(Path(opening.directory, text)) if is_path(text) else text
            for text in opening.custom_objects
        ]
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(["[convert]", *lines, ""])


def _value(value: object) -> str:
    """A list of several has a line for each."""
    if not isinstance(value, list):
        return toml_value(value)
    return "[\n" + "".join(f"    {toml_value(each)},\n" for each in value) + "]"
