"""The recipes with one precision everywhere, and a recipe as a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.data.code import is_path
from edgeconv.plugins.scale.tuning.search import ORDERS, in_order
from edgeconv.quantize.ranges.clipping import MIN_SAMPLES as RANGE_SAMPLES
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.requests.recipes import make_recipes, recipe_names
from edgeconv.system.store.toml_text import toml_value
from edgeconv.types import CALIBRATED, FOUR_BIT

if TYPE_CHECKING:
    from edgeconv.requests.tune import TuneRequest
    from edgeconv.types import (
        CalibrationRange,
        Opening,
        PostTrainingMethod,
        Recipe,
        RecipeName,
    )

    _Settings = tuple[CalibrationRange, tuple[PostTrainingMethod, ...]]

# No NPU computes in floats, and Vela 5.2 ends by SIGFPE on weights of 4 bits.
_ON_NPU: tuple[RecipeName, ...] = ("int8", "int16x8")
_WITHOUT_METHODS = ("float32", "float16")
# Balancing the ranges of channels helps where activations or weights have few bits.
_EQUALIZED = (*FOUR_BIT, "int8")


def uniform_recipes(
    request: TuneRequest, calibration: int, *, equalizes: bool
) -> tuple[Recipe, ...]:
    """The recipes with the same precision everywhere, the presumably cheapest first.

    A recipe that quantizes comes several times: with the methods that cost least first.
    `calibration` counts the samples that calibrate; a method that needs more is left out.
    `equalizes` says whether the model has layers that can be equalized.
    """
    names: tuple[RecipeName, ...] = ORDERS[request.objective]
    if request.recipes:
        names = recipe_names(request.recipes)
    elif request.objective == "size":
        # The drop is measured from float32, which is therefore always within the budget.
        names = tuple(name for name in names if name != "float32")
    elif request.objective == "npu-latency":
        names = _ON_NPU
    return tuple(
        _recipe(name, request, settings)
        for name in in_order(names, request.objective)
        for settings in _settings(name, calibration, equalizes)
    )


def _settings(name: RecipeName, calibration: int, equalizes: bool) -> tuple[_Settings, ...]:
    """The ranges and methods to try, one after another until one keeps the accuracy."""
    if name in _WITHOUT_METHODS:
        return (("minmax", ()),)
    layerwise = tuple(method for method, least in MIN_SAMPLES.items() if calibration >= least)
    # Rounding to nearest is rarely good enough with 4 bits.
    settings: list[_Settings] = [] if name in FOUR_BIT and layerwise else [("minmax", ())]
    if layerwise:
        settings.append(("minmax", layerwise))
    if equalizes and calibration and name in _EQUALIZED:
        settings.append(("minmax", ("equalization", *layerwise)))
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    if name in CALIBRATED and name != "int16x8" and calibration >= RANGE_SAMPLES["mse"]:
        settings.append(("auto", layerwise))
    return tuple(settings)


def _recipe(name: RecipeName, request: TuneRequest, settings: _Settings) -> Recipe:
    ranges, methods = settings
    (recipe,) = make_recipes(
        [name],
        # TFLiteConverter would start from the trained model, in TensorFlow, each time.
        engine="litert",
        calibration_range=ranges,
        full_integer=request.full_integer or request.objective == "npu-latency",
        methods=None if name in _WITHOUT_METHODS else methods or ["none"],
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
        if recipe.only_integers:
            values["full-integer"] = True
        if request.allow_suspect_calibration:
            values["allow-suspect-calibration"] = True
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
