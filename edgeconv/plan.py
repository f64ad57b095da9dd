"""What a conversion would make, under which keys, and what of it is there already.

A key is the hash of everything that decides the bytes and the checks: the source's
content, the signature, the recipe, the data, and the versions of the tools. Nothing
here loads numpy or TensorFlow, so an unchanged conversion answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data, source
from edgeconv.errors import InputRefused, UsageError
from edgeconv.nouns import Artifact, Recipe, RecipeName, Signature, SourceModel
from edgeconv.store import hash_of, read_noun, sha256_file, tool_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVING = "serving_default"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion, with everything named that it depends on.

    `model` is identified, not loaded: its signatures are found by `resolve`. `signature`
    is what the user asked for, None for the only one. `samples` is how many samples
    calibrate, None for all but the held-back ones.
    """

    model: SourceModel
    directory: Path
    recipes: tuple[Recipe, ...]
    signature: str | None
    batch: int | None
    calibration: str | None
    calibration_identity: str | None
    samples: int | None

    @property
    def float_key(self) -> str:
        """The key of the float32 graph."""
        return hash_of("float", self.model.sha256, self.signature, self.batch, tool_versions())

    def key(self, recipe: Recipe) -> str:
        """The key of one artifact."""
        return hash_of(
            self.float_key, recipe, self.calibration_identity, self.calibration, self.samples
        )

    def target(self, recipe: RecipeName) -> Path:
        """Where the .tflite of a recipe goes; its manifest is beside it, as .json."""
        return self.directory / f"{self.model.name}.{recipe}.tflite"


def make_plan(
    model: str | Path,
    directory: str | Path | None,
    recipes: Sequence[Recipe],
    *,
    signature: str | None,
    batch: int | None,
    calibration: str | None,
    samples: int | None,
) -> Plan:
    """The plan, once the model and the data are known to be there.

    Raises `InputRefused` for a model or data that cannot be taken, `UsageError` for
    options that do not go together.
    """
    identified = source.identify(model)
    _refuse_options(recipes, batch, calibration, samples)
    _refuse_recipes(recipes)
    target = Path(directory or f"{identified.name}.tflites").absolute()
    _refuse_inside(target, Path(identified.path))
    return Plan(
        model=identified,
        directory=target,
        recipes=tuple(recipes),
        signature=signature,
        batch=batch,
        calibration=calibration,
        calibration_identity=data.identity(calibration) if calibration else None,
        samples=samples,
    )


def resolve(plan: Plan) -> Signature | None:
    """The signature to convert; None for a Keras file, which has its one once it is loaded.

    Raises `InputRefused` for a model that cannot be converted, `UsageError` where the
    signature must be chosen, or for options that this kind of model does not have.
    """
    model = source.load(plan.model.path)
    if model.kind == "tflite":
        source.refuse_quantized(model)
        _refuse_tflite_options(plan)
    if model.kind in ("saved_model", "tflite"):
        return source.chosen_signature(model, plan.signature)
    if plan.signature not in (None, SERVING):
        raise UsageError(
            f"--signature {plan.signature}: a Keras file has one signature, {SERVING}",
            hint="leave --signature away",
        )
    return None


def _refuse_tflite_options(plan: Plan) -> None:
    if plan.batch is not None:
        raise UsageError(
            "--batch: the batch of a .tflite cannot be fixed without the model it came from",
            hint="convert the SavedModel or the Keras file",
        )
    if any(recipe.engine == "tflite" for recipe in plan.recipes):
        raise UsageError(
            "--engine tflite: TFLiteConverter does not take a .tflite",
            hint="leave --engine away, or convert the SavedModel or the Keras file",
        )


def _refuse_options(
    recipes: Sequence[Recipe], batch: int | None, calibration: str | None, samples: int | None
) -> None:
    integer = [recipe.name for recipe in recipes if recipe.full_integer]
    if integer and calibration is None:
        raise UsageError(
            f"{' and '.join(integer)} need calibration samples",
            hint="--calibration samples.npz, with one array per input of the model",
        )
    if samples is not None and calibration is None:
        raise UsageError("--samples without --calibration", hint="give --calibration SOURCE")
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples}: at least one sample is needed")
    if batch is not None and batch < 1:
        raise UsageError(f"--batch {batch}: at least 1")


def _refuse_recipes(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"two recipes are called {' and '.join(twice)}, and would have the same file",
            hint="convert them in two runs, into two directories",
        )
    if len({recipe.calibration_range for recipe in recipes if recipe.full_integer}) > 1:
        raise UsageError(
            "the recipes ask for different calibration ranges, and there is one calibration",
            hint="convert them in two runs",
        )


def _refuse_inside(directory: Path, model: Path) -> None:
    if model.is_dir() and model.resolve() in (directory.resolve(), *directory.resolve().parents):
        raise UsageError(
            f"{directory} is inside the model {model}, which publishing there would change",
            hint="choose another directory with -o",
        )


def published(plan: Plan, recipe: Recipe) -> Artifact | None:
    """The artifact in the plan's directory, if it is whole and what the plan would make."""
    target = plan.target(recipe.name)
    manifest = target.with_suffix(".json")
    if not (manifest.is_file() and target.is_file()):
        return None
    try:
        artifact = read_noun(manifest, Artifact, what="manifest")
    except InputRefused:
        return None
    if artifact.key != plan.key(recipe) or artifact.sha256 != sha256_file(target):
        return None
    # The same bytes from a source that has moved: the manifest must say where it is now.
    return artifact if artifact.source_path == plan.model.path else None
