"""The stage that quantizes: a candidate for each recipe, from the one float32 graph."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.conversion.candidate import Candidate
from edgeconv.errors import (
    EdgeconvError,
    InputRefused,
    ToolFailed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.processes.progress import CountedLine
from edgeconv.processes.sandbox import Access
from edgeconv.quantize.worker import QuantizeAnswer, QuantizeJob, quantize
from edgeconv.tf.tflite_converter import EngineJob, EnginePart, quantize_with_tflite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.conversion.session import Session
    from edgeconv.processes.persistent import PendingCall
    from edgeconv.types import Recipe

Candidates = dict["Recipe", "Candidate | EdgeconvError"]

# What stopped one recipe would stop the next: the user's own limits, or somebody.
_STOPPED = (WorkerTimedOut, WorkerOutOfMemory, WorkerKilled)


@dataclass(frozen=True)
class _PendingFile:
    """A recipe that the session's child makes, and where it puts the file."""

    recipe: Recipe
    file: Path
    call: PendingCall[QuantizeAnswer]


def start_quantizing(
    session: Session, recipes: Sequence[Recipe], *, dense_per_tensor: bool = False
) -> Callable[[], Candidates]:
    """Start ai-edge-quantizer on all of `recipes`, one after the other in the session's child.

    `dense_per_tensor` gives the weights of dense layers one scale, for older runtimes. The
    function that comes back waits for it, and has a candidate or an error for each. Where the
    child crashes, the recipe that it was at has that error, and another child makes the rest.
    """
    started = [_start(session, recipe, dense_per_tensor) for recipe in recipes]

    def finish() -> Candidates:
        candidates: Candidates = {}
        lost = False
        for number, pending in enumerate(started):
            recipe = pending.recipe
            line = f"quantizing to {recipe.name}"
            session.run.on_progress(CountedLine(line, number, len(recipes)))
            again = _start(session, recipe, dense_per_tensor) if lost else pending
            try:
                candidates[recipe] = _candidate(session, again)
            except _STOPPED as error:
                return candidates | dict.fromkeys(recipes[number:], error)
            except (InputRefused, ToolFailed) as error:
                candidates[recipe] = error
                lost = lost or not again.call.is_finished
        return candidates

    return finish


def _start(session: Session, recipe: Recipe, dense_per_tensor: bool) -> _PendingFile:
    child = session.child()
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=child.directory))
    file = directory / f"{recipe.name}.tflite"
    job = QuantizeJob(
        graph=session.graph, recipe=recipe, file=str(file), dense_per_tensor=dense_per_tensor
    )
    return _PendingFile(recipe, file, child.start(quantize, job))


def _candidate(session: Session, pending: _PendingFile) -> Candidate:
    attempt = session.run.result(pending.call)
    # The child goes on, and what it may write to is not what is verified and published.
    file = Path(tempfile.mkdtemp(prefix="made-", dir=session.run.scratch), pending.file.name)
    shutil.copyfile(pending.file, file)
    shutil.rmtree(pending.file.parent)
    return Candidate(
        recipe=pending.recipe,
        file=file,
        engine="litert",
        notes=attempt.notes,
        post_training=attempt.post_training,
        float_operators=attempt.float_operators,
    )


def quantize_with_converter(session: Session, recipe: Recipe) -> Candidate:
    """TFLiteConverter's candidate for `recipe`. Raises an `EdgeconvError` where it has none."""
    run, prepared = session.run, session.prepared
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
        select_ops=run.plan.request.select_ops,
        target=str(target),
    )
    access = Access(reads=(Path(prepared.saved_model), *prepared.calibration), writes=(directory,))
    with run.start(quantize_with_tflite, job, "TFLiteConverter", access=access) as task:
        run.result(task)
    return Candidate(recipe=recipe, file=target, engine="tflite")
