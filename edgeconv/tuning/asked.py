"""What a user asks of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.preprocessing import describe
from edgeconv.errors import UsageError
from edgeconv.quantize.recipes import make_recipes, recipe_names
from edgeconv.tuning.search import ORDERS, in_order
from edgeconv.types import QAT, Objective

if TYPE_CHECKING:
    from edgeconv.requests.tune import TuneRequest
    from edgeconv.types import Recipe, RecipeName

# Its accuracy is what a drop is measured from, so that it always is within the budget.
_FLOAT: RecipeName = "float32"
# What a conversion keeps of its calibration samples to verify with, and to spare.
_HELD_BACK = 16


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tune` that decide what is tried and what is found.

    `recipes` are those to choose from, none for all; `samples` of the data are used, None for
    all. `metric` is a name or module:function, "" for top1, or for the agreement where there are
    no labels. `allow_float` names the operators that may stay in float.
    """

    max_drop: float
    objective: Objective = "size"
    recipes: tuple[str, ...] = ()
    calibration: str = ""
    preprocess: str = "none"
    metric: str = ""
    output: str = ""
    runtime: str = "litert"
    signature: str = ""
    batch: int | None = None
    samples: int | None = None
    allow_float: tuple[str, ...] = ("*",)

    @classmethod
    def of(cls, asked: TuneRequest) -> Wanted:
        """What decides what is tried, of all that was asked."""
        own = {name: getattr(asked, name) for name in cls.__struct_fields__}
        return cls(**{**own, "preprocess": describe(asked.preprocess.by_input)})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a search ends: after so many trials, or seconds. A confirmation may follow."""

    trials: int = 40
    seconds: float = 480.0


def refuse(wanted: Wanted, limits: Limits) -> None:
    """Raise `UsageError` for what cannot be or makes no sense."""
    if not 0 <= wanted.max_drop < 1:
        raise UsageError(
            f"--max-drop {wanted.max_drop:g} is not in 0 to 1",
            hint="it is a fraction: 0.005 is half a point of accuracy",
        )
    if limits.trials < 1:
        raise UsageError(f"--trials {limits.trials}: at least 1 is needed")
    if not limits.seconds > 0:
        raise UsageError(f"--time-limit-s {limits.seconds:g}: a time above 0 is needed")
    if wanted.batch is not None and wanted.batch < 1:
        raise UsageError(f"--batch {wanted.batch}: at least 1")
    if wanted.samples is not None and wanted.samples < 1:
        raise UsageError(f"--samples {wanted.samples}: at least one sample is needed")
    if wanted.recipes and QAT in recipe_names(wanted.recipes):
        raise UsageError(
            "qat is training, which a search does not do",
            hint="leave it away; where nothing else meets the budget, the command is shown",
        )


def uniform(wanted: Wanted, calibration: int) -> tuple[Recipe, ...]:
    """The recipes with the same precision everywhere, from the cheapest as far as is known.

    Ranges and methods are chosen on calibration samples; with less than that takes, none are.
    """
    from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE

    names: tuple[RecipeName, ...] = ORDERS[wanted.objective]
    if wanted.recipes:
        names = recipe_names(wanted.recipes)
    elif wanted.objective == "size":
        names = tuple(name for name in names if name != _FLOAT)
    chooses = calibration >= MIN_SAMPLES_TO_CHOOSE + _HELD_BACK
    return tuple(
        _recipe(name, wanted, chooses=chooses) for name in in_order(names, wanted.objective)
    )


def _recipe(name: RecipeName, wanted: Wanted, *, chooses: bool) -> Recipe:
    # With 16 bits there is next to nothing to win back, and their reference kernels are slow.
    quantizes = name not in ("float32", "float16", "int16x8")
    has_ranges = name in ("int8", "int16x8", "int8x4")
    (recipe,) = make_recipes(
        [name],
        # The other engine starts from the trained model, in TensorFlow, each time.
        engine="litert",
        calibration_range="auto" if has_ranges and chooses else "minmax",
        allow_float=wanted.allow_float,
        methods=["auto" if chooses else "none"] if quantizes else None,
    )
    return recipe
