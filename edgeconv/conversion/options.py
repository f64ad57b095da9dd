"""What of the options of a conversion does not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Recipe


def refuse_options(recipes: Sequence[Recipe], asked: ConvertRequest) -> None:
    """Raise `UsageError` for options that do not go together."""
    _refuse_recipes(recipes)
    integer = [recipe.name for recipe in recipes if recipe.calibrates]
    if integer and not asked.sources:
        raise UsageError(
            f"{' and '.join(integer)} need calibration samples",
            hint="--calibration samples.npz, with one array per input of the model"
            + _without_methods(recipes),
        )
    _refuse_training(recipes, asked)
    for option, value in (
        ("--samples", asked.samples),
        ("--preprocess", asked.preprocess.by_input),
    ):
        if value and not asked.sources:
            raise UsageError(f"{option} without --calibration", hint="give --calibration SOURCE")
    if asked.samples is not None and asked.samples < 1:
        raise UsageError(f"--samples {asked.samples}: at least one sample is needed")
    if asked.batch is not None and asked.batch < 1:
        raise UsageError(f"--batch {asked.batch}: at least 1")
    for name, shape in asked.shapes.items():
        if asked.batch is not None and shape[:1] not in ((asked.batch,), (-1,)):
            raise UsageError(
                f"--batch {asked.batch}: --shape gives {name!r} the batch {shape[0]}",
                hint="leave --batch away, or give ? as the first dimension of --shape",
            )


def _without_methods(recipes: Sequence[Recipe]) -> str:
    only_for_methods = any(recipe.methods and not recipe.has_ranges for recipe in recipes)
    return "; or --methods none" if only_for_methods else ""


def _refuse_training(recipes: Sequence[Recipe], asked: ConvertRequest) -> None:
    trains = any(recipe.qat for recipe in recipes)
    if trains and not asked.training:
        raise UsageError(
            "qat needs labelled samples to train on", hint="--training train.npz, with labels"
        )
    if asked.training and not trains:
        raise UsageError("--training is for the recipe qat", hint="add qat to --to")
    if trains and asked.shapes:
        raise UsageError("--shape with qat: it fixes the batch only", hint="--batch 1")
    if trains and len(asked.signature) > 1:
        raise UsageError("qat trains a Keras model, which has one signature")


def _refuse_recipes(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"two recipes are called {' and '.join(twice)}, and would have the same file",
            hint="convert them in two runs, into two directories",
        )
    if len({recipe.calibration_range for recipe in recipes if recipe.has_ranges}) > 1:
        raise UsageError(
            "the recipes ask for different calibration ranges, and there is one calibration",
            hint="convert them in two runs",
        )


def refuse_inside(directory: Path, model: Path) -> None:
    """Raise `UsageError` where publishing in `directory` would change the model."""
    if model.is_dir() and model.resolve() in (directory.resolve(), *directory.resolve().parents):
        raise UsageError(
            f"{directory} is inside the model {model}, which publishing there would change",
            hint="choose another directory with -o",
        )
