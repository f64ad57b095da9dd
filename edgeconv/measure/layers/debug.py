"""The verb `debug`: which layers lose most when a model is quantised, and what helps."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.conversion.climb import make_all
from edgeconv.conversion.plan import make_plan
from edgeconv.conversion.run import Run
from edgeconv.conversion.signatures import ALL_SIGNATURES
from edgeconv.errors import EdgeconvError, InputRefused, ToolFailed, UsageError
from edgeconv.measure.layers.errors import layer_errors
from edgeconv.quantize.debugging import DebugJob, debug_file, worst_first
from edgeconv.quantize.recipes import make_recipes
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.texts import comma_list
from edgeconv.runtimes.interface import Model
from edgeconv.store import Cache, cache_directory, scratch_directory, tool_versions
from edgeconv.types import QAT, Debugged, Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Session
    from edgeconv.quantize.debugging import DebugAnswer
    from edgeconv.requests.looking import DebugRequest
    from edgeconv.types import DebuggedLayer

_FLOAT32 = "float32"
_RUNTIME = "ai-edge-litert"


def debug(asked: DebugRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Debugged:
    """Quantize a model by one recipe, and say what each layer loses and which rules help.

    The file is what `convert` would verify, made by the first engine; one that `convert` would
    refuse for what it answers is debugged all the same. Raises an `EdgeconvError` where the model
    gives no float32 graph, or the quantiser nothing that runs.
    """
    recipe = _refuse_recipe(_recipe(asked))
    if asked.signature == ALL_SIGNATURES:
        raise UsageError("debug looks into one signature", hint="name it with --signature")
    execution = asked.execution
    (floating,) = make_recipes([_FLOAT32])
    with scratch_directory() as scratch:
        plan = make_plan(
            ConvertRequest(
                model=asked.model,
                directory=str(scratch / "files"),
                to=(floating, recipe),
                signature=(asked.signature,) if asked.signature else (),
                calibration={"": asked.calibration},
                samples=asked.samples,
                preprocess=asked.preprocess,
                opening=asked.opening,
                execution=execution,
            )
        )
        cache = Cache(cache_directory() if execution.use_cache else None, on_progress)
        run = Run(plan, cache, execution, scratch, on_progress)
        good = make_all(run, [floating])[floating]
        if isinstance(good, EdgeconvError):
            raise good
        with good.session as session:
            return _debugged(session, recipe)


def _recipe(asked: DebugRequest) -> Recipe:
    """The one recipe that is asked for. Raises `UsageError`."""
    if isinstance(asked.to, Recipe):
        return asked.to
    recipes = make_recipes(
        comma_list(asked.to),
        calibration_range=asked.calibration_range,
        methods=asked.methods,
        layers=asked.layers,
    )
    if len(recipes) > 1:
        raise UsageError(f"--to {asked.to}: debug looks into one recipe at a time", hint="name one")
    return recipes[0]


def _refuse_recipe(recipe: Recipe) -> Recipe:
    if recipe.name == _FLOAT32:
        raise UsageError(
            "float32 quantises nothing, so there is nothing to debug",
            hint="--to int8, or what else is to be smaller or faster",
        )
    if recipe.name == QAT:
        raise UsageError(
            "debug looks into post-training quantisation, and qat trains",
            hint="--to int8 shows which layers are hard",
        )
    return recipe


def _debugged(session: Session, recipe: Recipe) -> Debugged:
    run, prepared = session.run, session.prepared
    (part,) = prepared.parts
    file = Path(tempfile.mkdtemp(prefix="debugged-", dir=run.scratch), f"{recipe.name}.tflite")
    found = _dissected(session, recipe, file)
    layers, notes = _with_insides(run, found, part, (file, prepared.float_model))
    record = part.split.record
    assert record is not None
    return Debugged(
        model=run.plan.model.path,
        signature=part.signature.key,
        recipe=recipe,
        calibration=record,
        samples=found.samples,
        runtime=f"{_RUNTIME} {tool_versions()[_RUNTIME]}",
        float_size_bytes=prepared.float_model.stat().st_size,
        size_bytes=file.stat().st_size,
        outputs=found.outputs,
        snr_db=found.snr_db,
        layers=tuple(worst_first(layers)),
        fixes=found.fixes,
        post_training=found.post_training,
        notes=(*prepared.notes, *found.notes, *notes),
    )


def _dissected(session: Session, recipe: Recipe, file: Path) -> DebugAnswer:
    made = session.child().directory / file.name
    found = session.result(debug_file, DebugJob(graph=session.graph, recipe=recipe, file=str(made)))
    shutil.copyfile(made, file)
    return found


def _with_insides(
    run: Run, found: DebugAnswer, part: Part, files: tuple[Path, Path]
) -> tuple[Sequence[DebuggedLayer], tuple[str, ...]]:
    """The layers with the errors of their own outputs in the file, and notes.

    `files` are the quantised model and the float32 one.
    """
    run.on_progress("comparing the layers")
    assert part.split.calibration is not None
    samples = data.read_samples(part.split.calibration).arrays
    quantised, floating = (
        Model(file=file, signature=part.signature.key, batch=part.split.batch) for file in files
    )
    try:
        errors = layer_errors(
            quantised,
            floating,
            {name: array[-found.samples :] for name, array in samples.items()},
            scratch=run.scratch,
            allowance=run.execution.allowance,
        )
    except (ToolFailed, InputRefused) as error:
        return found.layers, (f"no errors inside the file: {error.message}",)
    inside = {one.layer: one.snr_db for one in errors.errors}
    layers = [
        msgspec.structs.replace(layer, inside_snr_db=inside.get(layer.layer))
        for layer in found.layers
    ]
    return layers, ()
