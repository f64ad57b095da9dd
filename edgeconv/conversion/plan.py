"""What a conversion would make, under which keys, and what exists already.

A key is the hash of everything that decides the bytes and the checks: the source's
content, the signatures, the recipe, the data, and the versions of the tools. Nothing
here loads numpy or TensorFlow, so an unchanged conversion answers at once.
"""

import functools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from edgeconv import data
from edgeconv.model import source
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.store import (
    hash_of,
    json_with_checksum,
    read_checked,
    refuse_inputs,
    tool_versions,
)
from edgeconv.system.store.notes import recorded_path, sha256_once
from edgeconv.types import (
    Artifact,
    CalibrationRange,
    DataSource,
    Opening,
    Recipe,
    RecipeName,
    Signature,
    SourceModel,
)
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import SERVING_DEFAULT

# Raised where the same sources come to give other files, or other names in them.
REVISION = 16
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
    request: ConvertRequest
    calibration_identity: dict[str, str]
    training_identity: str = ""

    @property
    def float_key(self) -> str:
        """The key of the float32 graph, before anything that the ladder does to it."""
        request = self.request
        return hash_of(
            "float",
            REVISION,
            self.model.sha256,
            request.signature,
            request.batch,
            request.shapes,
            request.select_ops,
            request.fuse_lstm,
            request.states,
            source.opening_key(self.model),
            tool_versions(),
        )

    @property
    def data_key(self) -> str:
        """The key of the samples that calibrate, of those that are held back, and their check."""
        request = self.request
        return hash_of(
            self.calibration_identity,
            request.samples,
            request.preprocess.by_input,
            request.allow_suspect_calibration,
        )

    @property
    def calibration_range(self) -> CalibrationRange:
        """How the ranges are found, in the one calibration of all recipes."""
        return next((r.calibration_range for r in self.recipes if r.has_ranges), "minmax")

    def key(self, recipe: Recipe) -> str:
        """The key of one artifact."""
        trained_on = (self.training_identity,) if recipe.qat else ()
        return hash_of(
            self.float_key, recipe, self.data_key, self.request.target_runtime, trained_on
        )

    @property
    def source_path(self) -> str:
        """How manifests name the model."""
        return recorded_path(self.model.path, self.directory)

    @property
    def published_opening(self) -> Opening:
        """The opening without the directory of the modules, which is of this machine."""
        return msgspec.structs.replace(self.model.opening, directory="")

    def target(self, recipe: RecipeName) -> Path:
        """Where the .tflite of a recipe goes; its manifest has the same name with .json."""
        return self.directory / f"{self.model.name}.{recipe}.tflite"


class FinishedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that passed, and the file that is to be published under its name.

    `choosing_s` is what trials of methods took, in seconds.
    """

    artifact: Artifact
    file: Path
    choosing_s: float = 0.0


def make_plan(request: ConvertRequest) -> Plan:
    """The plan, once the model and the data are known to be there.

    A function that the data names runs within the allowance.

    Raises `InputRefused` for a model or data that cannot be taken, `UsageError` for
    options that do not go together.
    """
    recipes, execution = recipes_of(request), request.execution
    identified = source.identify(request.model, request.opening, allow_code=execution.allow_code)
    refuse_options(recipes, request)
    identity = functools.partial(
        data.identity, allow_code=execution.allow_code, allowance=execution.allowance
    )
    plan = Plan(
        model=identified,
        directory=Path(request.directory or f"{identified.name}.tflites").absolute(),
        recipes=recipes,
        request=request,
        calibration_identity={key: identity(each) for key, each in sources_of(request).items()},
        training_identity=identity(request.training) if request.training else "",
    )
    targets = (plan.target(recipe.name) for recipe in recipes)
    refuse_inputs(targets, further=(Path(identified.path),))
    return plan


def sources_of(request: ConvertRequest) -> dict[str, DataSource]:
    """The calibration SOURCE by signature key; without one, the training samples."""
    return request.calibration or ({"": request.training} if request.training else {})


def recipes_of(request: ConvertRequest) -> tuple[Recipe, ...]:
    """The recipes that `to` names, with their options. Raises `UsageError`."""
    ready = tuple(each for each in request.to if isinstance(each, Recipe))
    names = [each for each in request.to if isinstance(each, str)]
    if ready and not names:
        return ready
    return ready + make_recipes(
        names,
        engine=request.engine,
        calibration_range=request.calibration_range,
        input_type=request.input_type,
        output_type=request.output_type,
        full_integer=request.full_integer,
        min_snr_db=request.min_snr_db,
        methods=request.methods,
        layers=request.layers,
        qat=request.qat,
    )


def refuse_options(recipes: Sequence[Recipe], request: ConvertRequest) -> None:
    """Raise `UsageError` for options that do not go together."""
    _refuse_recipes(recipes)
    integer = [recipe.name for recipe in recipes if recipe.needs_samples]
    if integer and not sources_of(request):
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
        if value and not sources_of(request):
            raise UsageError(f"{option} without --calibration", hint="give --calibration SOURCE")
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
            "qat needs samples to train on",
            hint="--training train.npz, with labels if there are some",
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


def resolve(plan: Plan) -> tuple[Signature, ...]:
    """The signatures to convert; none for a Keras file, which has its one once it is loaded.

    The scan has admitted the model. Raises `InputRefused` for a model that cannot be converted,
    `UsageError` where the signature must be chosen, or for options that this kind of model does not
    have.
    """
    # What is to be run was allowed when the plan was made.
    model = source.load_to_run(plan.model.path, plan.model.opening, allow_code=True)
    request = plan.request
    if model.kind == "tflite":
        source.refuse_quantized(model)
        _refuse_tflite_options(plan)
    if model.kind in ("saved_model", "tflite"):
        return _chosen(model, request)
    if set(request.signature) - {SERVING_DEFAULT, ALL_SIGNATURES}:
        raise UsageError(
            f"--signature {' '.join(request.signature)}: "
            f"a Keras file has one signature, {SERVING_DEFAULT}",
            hint="remove --signature",
        )
    _refuse_unknown_keys(sources_of(request), [SERVING_DEFAULT])
    if request.shapes and (known := declared_signatures(plan)):
        _refuse_unknown_inputs(request.shapes, known)
    return ()


def declared_signatures(plan: Plan) -> tuple[Signature, ...]:
    """The signature that a Keras file's config declares; () where it does not tell, or elsewhere.

    Raises `InputRefused` as `model.source.keras_file_signature` does.
    """
    signature = source.keras_file_signature(plan.model.path)
    return (signature,) if signature else ()


def _chosen(model: SourceModel, request: ConvertRequest) -> tuple[Signature, ...]:
    keys: Sequence[str | None] = request.signature or (None,)
    if ALL_SIGNATURES in keys and not any(s.key == ALL_SIGNATURES for s in model.signatures):
        keys = [signature.key for signature in source.distinct_signatures(model)]
    chosen = {
        signature.key: signature
        for signature in (source.chosen_signature(model, key) for key in keys)
    }
    _refuse_unknown_keys(sources_of(request), list(chosen))
    _refuse_unknown_inputs(request.shapes, chosen.values())
    return tuple(chosen.values())


def _refuse_unknown_keys(calibration: Mapping[str, object], keys: Sequence[str]) -> None:
    for key in calibration:
        if key and key not in keys:
            raise unknown_name("signature in --calibration", key, keys)


def _refuse_unknown_inputs(shapes: Mapping[str, object], signatures: Iterable[Signature]) -> None:
    names = {spec.name for signature in signatures for spec in signature.inputs}
    for name in shapes:
        if name not in names:
            raise unknown_name("input in --shape", name, names)


def _refuse_tflite_options(plan: Plan) -> None:
    request = plan.request
    if request.batch is not None or request.shapes:
        option = "--shape" if request.batch is None else "--batch"
        raise UsageError(
            f"{option}: a .tflite cannot be given other shapes without the model it came from",
            hint="convert the SavedModel or the Keras file",
        )
    if any(recipe.engine == "tflite" and not recipe.full_integer for recipe in plan.recipes):
        raise UsageError(
            "--engine tflite: TFLiteConverter makes only int8 and int16x8 from a .tflite",
            hint="remove --engine, or convert the SavedModel or the Keras file",
        )


def find_published(plan: Plan, recipe: Recipe) -> Artifact | None:
    """The artifact in the plan's directory, if it is whole and what the plan would make."""
    artifact = _whole(plan.target(recipe.name))
    if artifact is None or artifact.key != plan.key(recipe):
        return None
    # The same bytes from a source that has moved: the manifest must say where it is now.
    return artifact if artifact.source_path == plan.source_path else None


def is_altered(file: Path) -> bool:
    """Whether a file and its manifest are there, and are not what was published together."""
    return file.is_file() and file.with_suffix(".json").is_file() and _whole(file) is None


def _whole(file: Path) -> Artifact | None:
    """What the manifest of a file has, if both are as they were published."""
    manifest = file.with_suffix(".json")
    if not (manifest.is_file() and file.is_file()):
        return None
    try:
        artifact, checksum = read_checked(manifest, Artifact, what="manifest")
    except InputRefused:
        return None
    is_whole = checksum != "changed" and artifact.sha256 == sha256_once(file)
    return artifact if is_whole else None


def manifest_bytes(artifact: Artifact) -> bytes:
    """The manifest of an artifact, with its checksum."""
    return json_with_checksum(artifact, indent=2)
