"""The verb `debug`: which layers lose most when a model is quantized, and what helps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.conversion.calibration_checks import calibration_warnings
from edgeconv.conversion.climb import make_all
from edgeconv.conversion.plan import make_plan
from edgeconv.conversion.run import Run
from edgeconv.conversion.signatures import ALL_SIGNATURES
from edgeconv.measure.layers.errors import layer_errors
from edgeconv.quantize.debugging import DebugJob, debug_file, worst_first
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.requests.texts import comma_list
from edgeconv.runtimes.interface import Model
from edgeconv.system.store import Cache, cache_directory, scratch_directory, tool_versions
from edgeconv.types import QAT, Debugged, Recipe
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Session
    from edgeconv.quantize.debugging import DebugAnswer
    from edgeconv.requests.looking import DebugRequest
    from edgeconv.types import DebuggedLayer

_FLOAT32 = "float32"
_RUNTIME = "ai-edge-litert"


def debug(
    request: DebugRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Debugged:
    """Quantize a model by one recipe, and measure what each layer loses and which rules help.

    The file is what `convert` would verify, output by the first engine; one that `convert` would
    refuse for what it answers is debugged all the same. Raises an `EdgeconvError` where the model
    gives no float32 graph, or the quantizer nothing that runs.
    """
    recipe = _refuse_recipe(_recipe(request))
    if request.signature == ALL_SIGNATURES:
        raise UsageError("debug takes one signature", hint="name it with --signature")
    execution = request.execution
    (floating,) = make_recipes([_FLOAT32])
    with scratch_directory() as scratch:
        plan = make_plan(
            ConvertRequest(
                model=request.model,
                directory=str(scratch / "files"),
                to=(floating, recipe),
                signature=(request.signature,) if request.signature else (),
                calibration={"": request.calibration},
                samples=request.samples,
                preprocess=request.preprocess,
                opening=request.opening,
                execution=execution,
            )
        )
        cache = Cache(cache_directory() if execution.use_cache else None, on_progress)
        with Run(plan, cache, execution, scratch, on_progress) as run:
            good = make_all(run, [floating])[floating]
            if isinstance(good, EdgeconvError):
                raise good
            return _debugged(good.session, recipe)


def _recipe(request: DebugRequest) -> Recipe:
    """The recipe of `--to`. Raises `UsageError` for several."""
    if isinstance(request.to, Recipe):
        return request.to
    recipes = make_recipes(
        comma_list(request.to),
        calibration_range=request.calibration_range,
        methods=request.methods,
        layers=request.layers,
    )
    if len(recipes) > 1:
        raise UsageError(
            f"--to {request.to}: debug looks into one recipe at a time", hint="name one"
        )
    return recipes[0]


def _refuse_recipe(recipe: Recipe) -> Recipe:
    if recipe.name == _FLOAT32:
        raise UsageError(
            "float32 quantizes nothing, so there is nothing to debug",
            hint="--to int8, or another recipe that makes the file smaller or faster",
        )
    if recipe.name == QAT:
        raise UsageError(
            "debug looks into post-training quantization, but qat trains",
            hint="--to int8 shows which layers are hard",
        )
    return recipe


def _debugged(session: Session, recipe: Recipe) -> Debugged:
    run, prepared = session.run, session.prepared
    (part,) = prepared.parts
    file = Path(tempfile.mkdtemp(prefix="debugged-", dir=run.scratch), f"{recipe.name}.tflite")
    debugged = _dissected(session, recipe, file)
    layers, notes = _with_layer_errors(run, debugged, part, (file, prepared.float_model))
    record = part.split.record
    assert record is not None
    return Debugged(
        model=run.plan.model.path,
        signature=part.signature.key,
        recipe=recipe,
        calibration=session.checked(record),
        samples=debugged.samples,
        runtime=f"{_RUNTIME} {tool_versions()[_RUNTIME]}",
        float_size_bytes=prepared.float_model.stat().st_size,
        size_bytes=file.stat().st_size,
        outputs=debugged.outputs,
        snr_db=debugged.snr_db,
        layers=tuple(worst_first(layers)),
        fixes=debugged.fixes,
        post_training=debugged.post_training,
        shared_scales=debugged.shared_scales,
        notes=(
            *calibration_warnings(session, recipe),
            *prepared.notes,
            *debugged.notes,
            *notes,
        ),
    )


def _dissected(session: Session, recipe: Recipe, file: Path) -> DebugAnswer:
    output = session.child().directory / file.name
    debugged = session.result(
        debug_file, DebugJob(graph=session.graph, recipe=recipe, file=str(output))
    )
    shutil.copyfile(output, file)
    return debugged


def _with_layer_errors(
    run: Run, debugged: DebugAnswer, part: Part, files: tuple[Path, Path]
) -> tuple[Sequence[DebuggedLayer], tuple[str, ...]]:
    """The layers with the errors of their outputs in the file, and notes.

    `files` are the quantized model and the float32 one.
    """
    run.on_progress("comparing the layers")
    assert part.split.calibration is not None
    samples = data.read_samples(part.split.calibration).arrays
    quantized, floating = (
        Model(file=file, signature=part.signature.key, batch=part.split.batch) for file in files
    )
    try:
        errors = layer_errors(
            quantized,
            floating,
            {name: array[-debugged.samples :] for name, array in samples.items()},
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
    except (ToolFailed, InputRefused) as error:
        return debugged.layers, (f"no errors inside the file: {error.message}",)
    inside = {error.tensor: error.snr_db for error in errors.errors}
    layers = [
        msgspec.structs.replace(layer, inside_snr_db=inside.get(layer.tensor))
        for layer in debugged.layers
    ]
    return layers, ()
