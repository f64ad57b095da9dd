"""The stage that quantizes: a candidate for each recipe, from the one float32 graph."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.candidate import Candidate
from edgeconv.quantize.worker import (
    ENVIRONMENT,
    LoadJob,
    QuantizeAnswer,
    QuantizeJob,
    load_engine,
    quantize,
)
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import CountedLine
from edgeconv.tf.tflite_converter import EngineJob, EnginePart, quantize_with_tflite, refuse_recipe
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import (
    EdgeconvError,
    InputRefused,
    ToolFailed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.conversion.run import Run
    from edgeconv.conversion.session import Session
    from edgeconv.system.processes.tasks import PendingCall, PersistentChild
    from edgeconv.types import Recipe

    Candidates = Iterator[tuple[Recipe, Candidate | EdgeconvError]]

# What stopped one recipe would stop the next: the user's own limits, or somebody.
_STOPPED = (WorkerTimedOut, WorkerOutOfMemory, WorkerKilled)


@dataclass(frozen=True)
class _PendingFile:
    """A recipe that the session's child makes, and where it puts the file."""

    recipe: Recipe
    file: Path
    call: PendingCall[QuantizeAnswer]


def start_engine(run: Run, *reads: Path) -> PersistentChild:
    """A child that loads litert-quantizer, for calls that may read these files and directories.

    It writes to its own place.
    """
    child = run.start_persistent(
        "litert-quantizer", access=Access(reads=reads), environment=ENVIRONMENT
    )
    child.start(load_engine, LoadJob())
    return child


def start_quantizing(
    session: Session, recipes: Sequence[Recipe], *, dense_per_tensor: bool = False
) -> Candidates:
    """Start litert-quantizer on all of `recipes`, one after the other in the session's child.

    `dense_per_tensor` gives the weights of dense layers one scale, for older runtimes. What comes
    back has a candidate or an error for each, in order, and waits for the next one only. Where the
    child crashes, the recipe that it was at has that error, and another child makes the rest.
    """
    started = [_start(session, recipe, dense_per_tensor) for recipe in recipes]
    return _candidates(session, started, dense_per_tensor)


def _candidates(
    session: Session, started: Sequence[_PendingFile], dense_per_tensor: bool
) -> Candidates:
    lost = False
    for number, pending in enumerate(started):
        recipe = pending.recipe
        session.run.on_progress(CountedLine(f"quantizing to {recipe.name}", number, len(started)))
        again = _start(session, recipe, dense_per_tensor) if lost else pending
        try:
            outcome: Candidate | EdgeconvError = _candidate_or_plain(
                session, again, dense_per_tensor
            )
        except _STOPPED as error:
            yield from ((each.recipe, error) for each in started[number:])
            return
        except (InputRefused, ToolFailed) as error:
            outcome = error
        lost = lost or not again.call.is_finished
        yield recipe, outcome


def _start(
    session: Session,
    recipe: Recipe,
    dense_per_tensor: bool = False,
    *,
    converted: Path | None = None,
) -> _PendingFile:
    """Start a recipe; its methods act on `converted` where TFLiteConverter made that."""
    child = session.child()
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=child.directory))
    file = directory / f"{recipe.name}.tflite"
    graph = session.graph
    if converted is not None:
        # The child reads nothing else of what the session wrote.
        own = shutil.copyfile(converted, directory / "converted.tflite")
        graph = msgspec.structs.replace(graph, quantized=str(own))
    job = QuantizeJob(graph=graph, recipe=recipe, file=str(file), dense_per_tensor=dense_per_tensor)
    return _PendingFile(recipe, file, child.start(quantize, job))


def _candidate_or_plain(
    session: Session, pending: _PendingFile, dense_per_tensor: bool
) -> Candidate:
    """The candidate; without methods where the child crashed, maybe of one that auto tried."""
    recipe = pending.recipe
    try:
        return _candidate(session, pending)
    except _STOPPED:
        raise
    except ToolFailed as error:
        if pending.call.is_finished or recipe.methods != ("auto",):
            raise
        reason = error.headline
    ranges = recipe.calibration_range
    plain = msgspec.structs.replace(
        recipe, methods=(), calibration_range="minmax" if ranges == "auto" else ranges
    )
    candidate = _candidate(session, _start(session, plain, dense_per_tensor))
    details = (*candidate.details, f"{NOT_TRIED}: {reason}")
    return msgspec.structs.replace(candidate, recipe=recipe, details=details)


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
        details=attempt.details,
        post_training=attempt.post_training,
        float_outputs=attempt.float_outputs,
        shared_scales=attempt.shared_scales,
        choosing_s=attempt.choosing_s,
    )


def quantize_with_converter(
    session: Session, recipe: Recipe, most_samples: int | None = None
) -> Candidate:
    """TFLiteConverter's candidate for `recipe`, with the recipe's methods for layers.

    With `most_samples` it is calibrated with no more, and without methods. Raises an
    `EdgeconvError` where it has none.
    """
    run, prepared = session.run, session.prepared
    refuse_recipe(recipe, is_tflite=prepared.saved_model is None)
    model = Path(prepared.saved_model or prepared.float_model)
    run.on_progress(f"quantizing to {recipe.name} with TFLiteConverter")
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=run.scratch))
    target = directory / f"{recipe.name}.tflite"
    job = EngineJob(
        model=str(model),
        is_tflite=prepared.saved_model is None,
        parts=tuple(
            EnginePart(
                signature=part.signature.key,
                samples=str(part.split.calibration) if part.split.calibration else None,
                batch=part.split.batch,
                stacked=part.split.stacked,
            )
            for part in prepared.parts
        ),
        recipe=recipe,
        select_ops=run.plan.request.select_ops,
        target=str(target),
        most_samples=most_samples,
    )
    access = Access(reads=(model, *prepared.calibration), writes=(directory,))
    with run.start(quantize_with_tflite, job, "TFLiteConverter", access=access) as task:
        run.result(task)
    if not recipe.methods or most_samples:
        return Candidate(recipe=recipe, file=target, engine="tflite")
    try:
        refined = _candidate(session, _start(session, recipe, converted=target))
    except _STOPPED:
        raise
    except EdgeconvError as error:
        if recipe.methods != ("auto",):
            raise
        # What auto tries never costs the file.
        details = (f"{NOT_TRIED}: {error.headline}",)
        return Candidate(recipe=recipe, file=target, engine="tflite", details=details)
    return msgspec.structs.replace(refined, engine="tflite")
