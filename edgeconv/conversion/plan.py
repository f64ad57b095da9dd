"""What a conversion would make, under which keys, and what of it is there already.

A key is the hash of everything that decides the bytes and the checks: the source's
content, the signatures, the recipe, the data, and the versions of the tools. Nothing
here loads numpy or TensorFlow, so an unchanged conversion answers at once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data, source
from edgeconv.errors import InputRefused, UsageError
from edgeconv.requests.convert import ConvertRequest
from edgeconv.scanning import refuse_findings
from edgeconv.store import hash_of, read_checked, sha256_file, tool_versions
from edgeconv.types import (
    Artifact,
    Recipe,
    RecipeName,
    Signature,
    SourceModel,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SERVING = "serving_default"
# Raised where the same sources come to give other files, or other names in them.
REVISION = 2
ALL_SIGNATURES = "all"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion, with everything named that it depends on.

    `model` is identified, not loaded: its signatures are found by `resolve`.
    `calibration_identity` is the hash of each SOURCE's content, by signature key, and
    `training_identity` that of the one to train on.
    """

    model: SourceModel
    directory: Path
    recipes: tuple[Recipe, ...]
    asked: ConvertRequest
    calibration_identity: dict[str, str]
    training_identity: str = ""

    @property
    def float_key(self) -> str:
        """The key of the float32 graph, before anything that the ladder does to it."""
        asked = self.asked
        return hash_of(
            "float",
            REVISION,
            self.model.sha256,
            asked.signature,
            asked.batch,
            asked.shapes,
            asked.select_ops,
            source.opening_key(self.model),
            tool_versions(),
        )

    @property
    def data_key(self) -> str:
        """The key of the samples that calibrate, and of those that are held back."""
        asked = self.asked
        return hash_of(self.calibration_identity, asked.samples, asked.preprocess.by_input)

    def key(self, recipe: Recipe) -> str:
        """The key of one artifact."""
        trained_on = (self.training_identity,) if recipe.qat else ()
        return hash_of(self.float_key, recipe, self.data_key, self.asked.target_runtime, trained_on)

    def target(self, recipe: RecipeName) -> Path:
        """Where the .tflite of a recipe goes; its manifest is beside it, as .json."""
        return self.directory / f"{self.model.name}.{recipe}.tflite"


def make_plan(asked: ConvertRequest) -> Plan:
    """The plan, once the model and the data are known to be there.

    A function that the data names runs within the allowance.

    Raises `InputRefused` for a model or data that cannot be taken, `UsageError` for
    options that do not go together.
    """
    recipes, execution = asked.recipes, asked.execution
    identified = source.identify(asked.model, asked.opening, allow_code=execution.allow_code)
    _refuse_options(recipes, asked)
    _refuse_recipes(recipes)
    target = Path(asked.directory or f"{identified.name}.tflites").absolute()
    _refuse_inside(target, Path(identified.path))
    identity = functools.partial(
        data.identity, allow_code=execution.allow_code, allowance=execution.allowance
    )
    return Plan(
        model=identified,
        directory=target,
        recipes=recipes,
        asked=asked,
        calibration_identity={key: identity(text) for key, text in asked.sources.items()},
        training_identity=identity(asked.training) if asked.training else "",
    )


def resolve(plan: Plan, trusted: Collection[str] = ()) -> tuple[Signature, ...]:
    """The signatures to convert; none for a Keras file, which has its one once it is loaded.

    Nothing has loaded the model before. Raises `InputRefused` for a model that cannot be
    converted, or that the scan refuses and that is not among `trusted`, `UsageError` where the
    signature must be chosen, or for options that this kind of model does not have.
    """
    trains = any(recipe.qat for recipe in plan.recipes)
    refuse_findings(plan.model, trusted=trusted, reads_layers=trains)
    # What is to be run was allowed when the plan was made.
    model = source.load_to_run(plan.model.path, plan.model.opening, allow_code=True)
    asked = plan.asked
    if model.kind == "tflite":
        source.refuse_quantized(model)
        _refuse_tflite_options(plan)
    if model.kind in ("saved_model", "tflite"):
        return _chosen(model, asked)
    if set(asked.signature) - {SERVING, ALL_SIGNATURES}:
        raise UsageError(
            f"--signature {' '.join(asked.signature)}: a Keras file has one signature, {SERVING}",
            hint="leave --signature away",
        )
    _refuse_unknown_keys(asked.sources, [SERVING])
    if asked.shapes and (known := declared(plan)):
        _refuse_unknown_inputs(asked.shapes, known)
    return ()


def declared(plan: Plan) -> tuple[Signature, ...]:
    """The signature that a Keras file's config declares; () where it does not tell, or elsewhere.

    Raises `InputRefused` as `source.declared` does.
    """
    signature = source.declared(plan.model.path)
    return (signature,) if signature else ()


def _chosen(model: SourceModel, asked: ConvertRequest) -> tuple[Signature, ...]:
    keys: Sequence[str | None] = asked.signature or (None,)
    if ALL_SIGNATURES in keys and not any(s.key == ALL_SIGNATURES for s in model.signatures):
        keys = [signature.key for signature in source.distinct_signatures(model)]
    chosen = {one.key: one for one in (source.chosen_signature(model, key) for key in keys)}
    _refuse_unknown_keys(asked.sources, list(chosen))
    _refuse_unknown_inputs(asked.shapes, chosen.values())
    return tuple(chosen.values())


def _refuse_unknown_keys(calibration: Mapping[str, str], keys: Sequence[str]) -> None:
    from edgeconv.errors import unknown_name

    for key in calibration:
        if key and key not in keys:
            raise unknown_name("signature in --calibration", key, keys)


def _refuse_unknown_inputs(shapes: Mapping[str, object], signatures: object) -> None:
    from edgeconv.errors import unknown_name

    names = {spec.name for signature in signatures for spec in signature.inputs}  # type: ignore[attr-defined]
    for name in shapes:
        if name not in names:
            raise unknown_name("input in --shape", name, names)


def _refuse_tflite_options(plan: Plan) -> None:
    asked = plan.asked
    if asked.batch is not None or asked.shapes:
        option = "--shape" if asked.batch is None else "--batch"
        raise UsageError(
            f"{option}: a .tflite cannot be given other shapes without the model it came from",
            hint="convert the SavedModel or the Keras file",
        )
    if any(recipe.engine == "tflite" for recipe in plan.recipes):
        raise UsageError(
            "--engine tflite: TFLiteConverter does not take a .tflite",
            hint="leave --engine away, or convert the SavedModel or the Keras file",
        )


def _refuse_options(recipes: Sequence[Recipe], asked: ConvertRequest) -> None:
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


def _refuse_inside(directory: Path, model: Path) -> None:
    if model.is_dir() and model.resolve() in (directory.resolve(), *directory.resolve().parents):
        raise UsageError(
            f"{directory} is inside the model {model}, which publishing there would change",
            hint="choose another directory with -o",
        )


def refuse_changed_model(plan: Plan) -> None:
    """Raise `InputRefused` where the model is not what the plan was made for any more.

    To be asked after it was read, and before what came of it is kept under the plan's keys.
    """
    now = source.identify(plan.model.path, plan.model.opening, allow_code=True)
    if (now.sha256, now.opening) != (plan.model.sha256, plan.model.opening):
        raise _changed(plan.model.path)


def refuse_changed_samples(text: str, identity: str, *, allow_code: bool) -> None:
    """Raise `InputRefused` where a SOURCE has not the content of this hash any more.

    To be asked after it was read. One that runs code may answer otherwise each time: what it
    says now tells nothing of what it said then.
    """
    if not data.runs_code(text) and data.identity(text, allow_code=allow_code) != identity:
        raise _changed(text)


def _changed(what: str) -> InputRefused:
    return InputRefused(
        f"{what} changed while it was read, so nobody knows what came of it",
        hint="run it again, once nothing writes to it",
    )


def published(plan: Plan, recipe: Recipe) -> Artifact | None:
    """The artifact in the plan's directory, if it is whole and what the plan would make."""
    target = plan.target(recipe.name)
    manifest = target.with_suffix(".json")
    if not (manifest.is_file() and target.is_file()):
        return None
    try:
        artifact, checksum = read_checked(manifest, Artifact, what="manifest")
    except InputRefused:
        return None
    if checksum == "changed" or artifact.key != plan.key(recipe):
        return None
    if artifact.sha256 != sha256_file(target):
        return None
    # The same bytes from a source that has moved: the manifest must say where it is now.
    return artifact if artifact.source_path == plan.model.path else None
