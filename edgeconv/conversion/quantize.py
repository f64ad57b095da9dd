"""The second stage: one candidate per recipe, from the one float32 graph."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import EdgeconvError, InputRefused, ToolFailed
from edgeconv.quantize.candidate import Candidate
from edgeconv.quantize.worker import Attempt, QuantizeJob, QuantizePart, quantize
from edgeconv.sandbox import Access
from edgeconv.tf.second_engine import EngineJob, EnginePart, quantize_with_tflite

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from edgeconv.conversion.prepare import Prepared
    from edgeconv.conversion.run import Run
    from edgeconv.types import Recipe

Made = dict["Recipe", "Candidate | EdgeconvError"]


def float_candidate(recipe: Recipe, prepared: Prepared) -> Candidate:
    """The float32 graph as it is, judged by `recipe`."""
    return Candidate(recipe=recipe, file=prepared.float_model, engine="litert")


def start_first_engine(
    run: Run,
    prepared: Prepared,
    recipes: Sequence[Recipe],
    children: contextlib.ExitStack,
    *,
    dense_per_tensor: bool = False,
) -> Callable[[], Made]:
    """Start ai-edge-quantizer on all of `recipes`, with one calibration pass, in one child.

    `dense_per_tensor` gives the weights of dense layers one scale, for older runtimes. The
    function that comes back waits for it, and has a candidate or an error for each.
    """
    if not recipes:
        return dict
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=run.scratch))
    job = QuantizeJob(
        float_model=str(prepared.float_model),
        parts=tuple(
            QuantizePart(
                signature=part.signature.key,
                samples=str(part.split.calibration) if part.split.calibration else None,
                batch=part.split.batch,
            )
            for part in prepared.parts
        ),
        recipes=tuple(recipes),
        directory=str(directory),
        threads=run.execution.threads,
        dense_per_tensor=dense_per_tensor,
    )
    task = children.enter_context(
        run.start(
            quantize,
            job,
            "ai-edge-quantizer",
            access=Access(reads=(prepared.float_model, *_samples(prepared)), writes=(directory,)),
        )
    )

    def finish() -> Made:
        try:
            attempts = {a.recipe: a for a in run.result(task).attempts}
        except (InputRefused, ToolFailed) as error:
            return dict.fromkeys(recipes, error)
        return {r: _candidate(r, attempts[r.name], directory) for r in recipes}

    return finish


def _samples(prepared: Prepared) -> tuple[Path, ...]:
    """Where the samples to calibrate with are stored."""
    return tuple(part.split.calibration for part in prepared.parts if part.split.calibration)


def _candidate(recipe: Recipe, attempt: Attempt, directory: Path) -> Candidate | EdgeconvError:
    if attempt.error:
        return ToolFailed(attempt.error)
    file = directory / f"{recipe.name}.tflite"
    return Candidate(
        recipe=recipe,
        file=file,
        engine="litert",
        notes=attempt.notes,
        post_training=attempt.post_training,
        float_operators=attempt.float_operators,
    )


def second_engine(run: Run, prepared: Prepared, recipe: Recipe) -> Candidate:
    """TFLiteConverter's candidate for `recipe`. Raises an `EdgeconvError` where it has none."""
    if prepared.saved_model is None:
        raise ToolFailed("TFLiteConverter does not take a .tflite")
    run.on_progress(f"quantizing to {recipe.name} with TFLiteConverter")
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=run.scratch))
    target = directory / f"{recipe.name}.tflite"
    job = EngineJob(
        saved_model=prepared.saved_model,
        parts=tuple(
            EnginePart(
                signature=part.signature.key,
                samples=str(part.split.calibration) if part.split.calibration else None,
                batch=part.split.batch,
            )
            for part in prepared.parts
        ),
        recipe=recipe,
        select_ops=run.plan.asked.select_ops,
        target=str(target),
    )
    access = Access(reads=(Path(prepared.saved_model), *_samples(prepared)), writes=(directory,))
    with run.start(quantize_with_tflite, job, "TFLiteConverter", access=access) as task:
        run.result(task)
    return Candidate(recipe=recipe, file=target, engine="tflite")
