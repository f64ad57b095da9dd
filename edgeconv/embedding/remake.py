"""A published model converted again, smaller for a microcontroller: `embed --remake`."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edgeconv.conversion.convert import convert
from edgeconv.data import runs_code
from edgeconv.embedding.micro import arena, has_open_batch, integer_io, options_that_save
from edgeconv.embedding.plan import EmbedPlan, Published, find_published
from edgeconv.model.tflite.flatbuffer import operator_name, parse
from edgeconv.model.tflite.layers import STATEFUL
from edgeconv.plugins import embed_target
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import MIN_SNR_DB, default_range
from edgeconv.runtimes.choice import recorded_target
from edgeconv.system.processes.escaping import shell_line
from edgeconv.system.store.notes import was_converted
from edgeconv.types import CALIBRATED, Artifact, Execution, Steps, TargetRuntime
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

_FOLDER = "remade"


class _Cost(NamedTuple):
    """The size of a model: operators, different ones for the resolver, and bytes."""

    operators: int
    kinds: int
    arena_bytes: int
    file_bytes: int


def remake_command(published: Published) -> str:
    """The command that does the same as `remake`."""
    return shell_line(["edgeconv", "convert", *_conversion(published).words()])


def remake(request: EmbedPlan, on_progress: Callable[[str], None]) -> tuple[Path, str]:
    """Convert the model again from the source and samples of its manifest.

    Returns the .tflite, in a folder next to the published one, and its measured saving; the
    published one and "" where there is nothing to save. Raises `InputRefused` where the source is
    missing or changed, `UsageError` for a model of quantization-aware training or a target that is
    not for microcontrollers, and `ToolFailed` where the conversion fails.
    """
    published = request.published
    artifact = published.artifact
    if "micro" not in embed_target(request.target).OPTIONS:
        raise UsageError(
            f"--remake is for microcontrollers, which {request.target} is not",
            hint="convert with --batch 1, or --io int8, yourself",
        )
    if not (options := options_that_save(artifact, published.model)):
        return published.model, ""
    if artifact.recipe.name not in ("float32", *CALIBRATED):
        raise UsageError(
            f"--remake: {artifact.file} cannot be converted again from its manifest: its recipe is "
            f"{artifact.recipe.name}",
            hint=f"convert it with {' '.join(options)} yourself",
        )
    _refuse_foreign(published)
    if not published.source.exists():
        raise InputRefused(
            f"--remake: {published.source}, the source of {artifact.file}, does not exist",
            hint="run it where the model was converted, or run this with your paths: "
            + remake_command(published),
        )
    for _, samples in published.calibration:
        if not (samples.kind or Path(samples.location).exists()):
            raise InputRefused(
                f"--remake: the samples of {artifact.file} are not there: {samples}",
                hint="if they were in memory, convert again with batch=1 and io='int8' there",
            )
    conversion = convert(_conversion(published), on_progress=on_progress)
    for failure in conversion.failures:
        raise ToolFailed(f"--remake: {failure.message}", hint=failure.hint)
    remade = find_published(Path(conversion.directory) / conversion.artifacts[0].file)
    _refuse_other(artifact, remade.artifact)
    return remade.model, _saved(_cost_of(published), _cost_of(remade))


def _refuse_foreign(published: Published) -> None:
    """Raise `InputRefused` for another's manifest, which names files to load and code to run."""
    artifact = published.artifact
    codes = [source for _, source in published.calibration if runs_code(source)]
    if codes or not was_converted(published.source, artifact.source_sha256):
        why = f"it names code, {codes[0]}" if codes else "it was not written on this machine"
        raise InputRefused(
            f"--remake: the manifest of {artifact.file} is not trusted: {why}",
            hint=f"check this command, and run it yourself: {remake_command(published)}",
        )


def _cost_of(published: Published) -> _Cost:
    """The size of the model on a microcontroller; the arena is estimated."""
    data = published.model.read_bytes()
    model = parse(data, where=str(published.model))
    names = [operator_name(model, o) for graph in model.subgraphs for o in graph.operators]
    return _Cost(len(names), len(set(names)), arena(data, model).estimate, len(data))


def _saved(before: _Cost, after: _Cost) -> str:
    """The measured difference between a model and its new conversion."""
    return (
        f"{before.operators} operators became {after.operators}, "
        f"{before.kinds} in the resolver became {after.kinds}, "
        f"{before.file_bytes:,} bytes of model became {after.file_bytes:,}, and "
        f"{before.arena_bytes:,} bytes of arena, by estimate, became {after.arena_bytes:,}"
    )


def _refuse_other(before: Artifact, after: Artifact) -> None:
    """Raise `InputRefused` where the model or its samples changed since."""
    samples = [[record.sha256 for record in artifact.calibration] for artifact in (before, after)]
    if before.source_sha256 != after.source_sha256 or samples[0] != samples[1]:
        what = "calibration samples" if samples[0] != samples[1] else before.source_path
        raise InputRefused(
            f"--remake: {what} changed since {before.file} was converted",
            hint="convert and measure it again first",
        )


def _conversion(published: Published) -> ConvertRequest:
    """The request of `convert` that makes the model smaller."""
    artifact = published.artifact
    recipe = artifact.recipe
    several = len(artifact.signatures) > 1
    first, last = integer_io(artifact, published.model)
    fixes = has_open_batch(artifact) and artifact.source_kind != "tflite"
    least, ranges = recipe.min_snr_db, recipe.calibration_range
    is_usual = not recipe.has_ranges or ranges == default_range(recipe.methods)
    return ConvertRequest(
        model=str(published.source),
        directory=str(published.model.parent / _FOLDER),
        to=(recipe.name,),
        engine=recipe.engine,
        calibration_range=None if is_usual else ranges,
        input_type=first,
        output_type=last,
        full_integer=recipe.only_integers,
        min_snr_db=None if least == MIN_SNR_DB.get(recipe.name) else least,
        methods=recipe.methods or ("none",),
        layers=recipe.layers,
        calibration={key if several else "": source for key, source in published.calibration},
        signature=tuple(signature.key for signature in artifact.signatures) if several else (),
        allow_suspect_calibration=any(record.suspicions for record in artifact.calibration),
        preprocess=Steps(by_input=artifact.preprocessing),
        batch=1 if fixes else None,
        fuse_lstm=artifact.source_kind != "tflite"
        and any(operator.name in STATEFUL for operator in artifact.operators),
        target_runtime=recorded_target(artifact.target.runtime)
        if artifact.target
        else TargetRuntime(),
        # The manifest is this user's own.
        execution=Execution(allow_code=True),
    )
