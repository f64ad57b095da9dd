"""The recipes with one precision everywhere, and a recipe as a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.data.custom import is_path
from edgeconv.quantize.recipes import make_recipes, recipe_names
from edgeconv.store.toml_text import toml_value
from edgeconv.tuning.search import ORDERS, in_order
from edgeconv.types import CALIBRATED

if TYPE_CHECKING:
    from edgeconv.requests.tune import TuneRequest
    from edgeconv.types import Opening, Recipe, RecipeName

# What a conversion holds back of its calibration samples for verification, and a reserve.
_HELD_BACK = 16
_WITHOUT_METHODS = ("float32", "float16")


def uniform_recipes(request: TuneRequest, calibration: int) -> tuple[Recipe, ...]:
    """The recipes with the same precision everywhere, the presumably cheapest first.

    `calibration` counts the calibration samples. Where there are too few to choose ranges and
    methods by, plain ones are taken.
    """
    from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE

    names: tuple[RecipeName, ...] = ORDERS[request.objective]
    if request.recipes:
        names = recipe_names(request.recipes)
    elif request.objective == "size":
        # The drop is measured from float32, which is therefore always within the budget.
        names = tuple(name for name in names if name != "float32")
    chooses = calibration >= MIN_SAMPLES_TO_CHOOSE + _HELD_BACK
    return tuple(
        _recipe(name, request, chooses=chooses) for name in in_order(names, request.objective)
    )


def _recipe(name: RecipeName, request: TuneRequest, *, chooses: bool) -> Recipe:
    # With 16 bits there is next to nothing to win back, and their reference kernels are slow.
    quantizes = name not in ("float32", "float16", "int16x8")
    (recipe,) = make_recipes(
        [name],
        # TFLiteConverter would start from the trained model, in TensorFlow, each time.
        engine="litert",
        calibration_range="auto" if name in CALIBRATED and chooses else "minmax",
        allow_float=request.allow_float,
        methods=["auto" if chooses else "none"] if quantizes else None,
    )
    return recipe


def recipe_text(
    recipe: Recipe, request: TuneRequest, opening: Opening, calibration: str, preprocess: str
) -> str:
    """The [convert] table in TOML from which `edgeconv convert` makes the same bytes.

    `calibration` is the SOURCE relative to the folder of the file, `preprocess` the steps.
    Default values are left out.
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
    if request.signature:
        values["signature"] = request.signature
    if request.batch is not None:
        values["batch"] = request.batch
    if opening.tags:
        values["tag"] = ",".join(opening.tags)
    if opening.custom_objects:
        # The file is used from any folder; a dotted name is looked up where edgeconv is run.
        values["custom-objects"] = [
            str(Path(opening.directory, text)) if is_path(text) else text
            for text in opening.custom_objects
        ]
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(["[convert]", *lines, ""])


def _value(value: object) -> str:
    """A value in TOML; a list has a line for each item."""
    if not isinstance(value, list):
        return toml_value(value)
    return "[\n" + "".join(f"    {toml_value(item)},\n" for item in value) + "]"
