"""The third stage: run what was made, compare it with what it came from."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.errors import EdgeconvError, WorkerOutOfMemory, WorkerTimedOut
from edgeconv.quantize.candidate import Candidate, Examined, examine, examine_graph
from edgeconv.quantize.recipes import make_recipes
from edgeconv.runtimes.local import Running, start_run
from edgeconv.stages.make import float_candidate, second_engine
from edgeconv.workers import in_turn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from edgeconv.nouns import Recipe
    from edgeconv.stages import Run
    from edgeconv.stages.make import Made
    from edgeconv.stages.prepare import Prepared

    Outputs = Mapping[str, NDArray[np.generic]]
    Judged = dict[Recipe, Examined | EdgeconvError]


def judge_float(run: Run, prepared: Prepared, recipe: Recipe | None) -> tuple[Examined, Outputs]:
    """The float32 model held against the trained one, and its outputs.

    `recipe` is the float32 recipe if it was asked for; the check is made in any case,
    since every other recipe is held against this model. Raises `VerificationFailed`.
    """
    run.on_progress("verifying float32 against the trained model")
    recipe = recipe or make_recipes(["float32"])[0]
    candidate = float_candidate(recipe, prepared)
    with _start(run, prepared, candidate.file) as running:
        done = running.result()
        outputs = running.outputs(done)
    examined = examine(
        candidate,
        prepared.signature.key,
        outputs,
        _reference(prepared),
        reference="trained model in TensorFlow" if prepared.reference else "none: it is the source",
        synthetic=prepared.split.synthetic,
        runtime=f"{done.runtime} {done.version}",
    )
    return examined, outputs


def judge_all(run: Run, prepared: Prepared, made: Made, float_outputs: Outputs) -> Judged:
    """Hold each candidate against the float32 model, two running at a time.

    What did not become a candidate stays the error it is.
    """
    settled: Judged = {r: m for r, m in made.items() if isinstance(m, EdgeconvError)}
    sound = []
    for recipe, candidate in made.items():
        if isinstance(candidate, EdgeconvError):
            continue
        # What can be read from the file is checked before the file is run.
        try:
            examine_graph(candidate, prepared.signature.key)
        except EdgeconvError as error:
            settled[recipe] = error
        else:
            sound.append(candidate)
    # The runtime has only reference kernels for int16x8; the slowest goes first.
    sound.sort(key=lambda candidate: candidate.recipe.name != "int16x8")
    starts = [functools.partial(_start, run, prepared, candidate.file) for candidate in sound]
    for candidate, running in zip(sound, in_turn(starts), strict=True):
        run.on_progress(f"verifying {candidate.recipe.name}")
        settled[candidate.recipe] = _verdict(candidate, running, prepared, float_outputs)
    return settled


def second_opinion(
    run: Run, prepared: Prepared, recipe: Recipe, first: EdgeconvError | None, outputs: Outputs
) -> Examined | EdgeconvError:
    """What TFLiteConverter makes of a recipe, judged like any other.

    `first` is why ai-edge-quantizer's result was not good, None where it was not asked. It
    is the answer where the user's own limits stopped it: they would be spent once more.
    """
    if isinstance(first, WorkerTimedOut | WorkerOutOfMemory):
        return first
    note = (
        f"made with TFLiteConverter, because with ai-edge-quantizer: {first.message}"
        if first
        else ""
    )
    try:
        candidate = second_engine(run, prepared, recipe, note)
    except EdgeconvError as error:
        second: Examined | EdgeconvError = error
    else:
        second = judge_all(run, prepared, {recipe: candidate}, outputs)[recipe]
    if first is not None and isinstance(second, EdgeconvError):
        both = f"{first.message}\n  with TFLiteConverter instead: {second.message}"
        return type(first)(both, hint=first.hint)
    return second


def _verdict(
    candidate: Candidate, running: Running, prepared: Prepared, float_outputs: Outputs
) -> Examined | EdgeconvError:
    try:
        done = running.result()
        return examine(
            candidate,
            prepared.signature.key,
            running.outputs(done),
            float_outputs,
            reference="float32 .tflite",
            synthetic=prepared.split.synthetic,
            runtime=f"{done.runtime} {done.version}",
        )
    except EdgeconvError as error:
        return error


def _start(run: Run, prepared: Prepared, file: Path) -> Running:
    return start_run(
        file,
        prepared.split.held_back,
        scratch=run.scratch,
        signature=prepared.signature.key,
        batch=prepared.split.batch,
        threads=run.execution.threads,
        allowance=run.execution.allowance,
    )


def _reference(prepared: Prepared) -> Outputs | None:
    if prepared.reference is None:
        return None
    answer = prepared.reference()
    return {
        name: np.load(answer.directory / f"{index}.npy")
        for index, name in enumerate(answer.outputs)
    }
