"""Options of a conversion that do not go together."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgeconv.requests.convert import ConvertRequest
    from edgeconv.types import Recipe


def refuse_options(recipes: Sequence[Recipe], request: ConvertRequest) -> None:
    """Raise `UsageError` for options that do not go together."""
    _refuse_recipes(recipes)
    integer = [recipe.name for recipe in recipes if recipe.needs_samples]
    if integer and not request.sources:
        names = ",".join(recipe.name for recipe in recipes)
        raise UsageError(
            f"calibration samples are needed for {' and '.join(integer)}",
            hint=f"edgeconv convert {shlex.quote(request.model)} --to {names} --calibration "
            "train.npz, with a few hundred training samples, an array per input of the model; "
            f"dynamic and float16 need none{_without_methods(recipes)}",
        )
    _refuse_training(recipes, request)
    for option, value in (
        ("--samples", request.samples),
        ("--preprocess", request.preprocess.by_input),
    ):
        if value and not request.sources:
            raise UsageError(f"{option} without --calibration", hint="give --calibration SOURCE")
    if request.samples is not None and request.samples < 1:
        raise UsageError(f"--samples {request.samples}: at least one sample is needed")
    if request.batch is not None and request.batch < 1:
        raise UsageError(f"--batch {request.batch}: at least 1")
    for name, shape in request.shapes.items():
        if request.batch is not None and shape[:1] not in ((request.batch,), (-1,)):
            raise UsageError(
                f"--batch {request.batch}: --shape gives {name!r} the batch {shape[0]}",
                hint="remove --batch, or give ? as the first dimension of --shape",
            )


def _without_methods(recipes: Sequence[Recipe]) -> str:
    only_for_methods = any(recipe.needs_samples and not recipe.has_ranges for recipe in recipes)
    return "; or --methods none" if only_for_methods else ""


def _refuse_training(recipes: Sequence[Recipe], request: ConvertRequest) -> None:
    trains = any(recipe.qat for recipe in recipes)
    if trains and not request.training:
        raise UsageError(
            "qat needs labeled samples to train on", hint="--training train.npz, with labels"
        )
    if request.training and not trains:
        raise UsageError("--training is for the recipe qat", hint="add qat to --to")
    if trains and request.shapes:
        raise UsageError(
            "--shape does not work with qat, which can fix only the batch", hint="--batch 1"
        )
    if trains and len(request.signature) > 1:
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
            "the recipes ask for different calibration ranges, but share one calibration",
            hint="convert them in two runs",
        )


def refuse_inside(directory: Path, model: Path) -> None:
    """Raise `UsageError` where publishing in `directory` would change the model."""
    if model.is_dir() and model.resolve() in (directory.resolve(), *directory.resolve().parents):
        raise UsageError(
            f"{directory} is inside the model {model}, which publishing there would change",
            hint="choose another directory with -o",
        )
