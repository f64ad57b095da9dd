"""The third stage: run what was made, compare it with what it came from."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.quantize import float_candidate, second_engine
from edgeconv.errors import (
    EdgeconvError,
    ToolFailed,
    UnsupportedOperators,
)
from edgeconv.processes.workers import in_turn
from edgeconv.progress import Counted
from edgeconv.quantize.candidate import (
    Candidate,
    Compared,
    Examined,
    ExaminedGraph,
    examine,
    examine_graph,
)
from edgeconv.quantize.recipes import MIN_SNR_DB, make_recipes
from edgeconv.runtimes.local import Target, start_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.conversion.prepare import Part, Prepared
    from edgeconv.conversion.quantize import Made
    from edgeconv.conversion.run import Run
    from edgeconv.runtimes.conversation import Run as RunOfModel
    from edgeconv.runtimes.conversation import StoredRun as Running
    from edgeconv.types import LadderStep, Recipe

    # By signature, then by output.
    Outputs = Mapping[str, dict[str, NDArray[np.generic]]]
    Judged = dict[Recipe, Examined | EdgeconvError]


def judge_float(
    run: Run, prepared: Prepared, recipe: Recipe | None, target: Target = Target()
) -> tuple[Examined, Outputs]:
    """The float32 model held against the trained one, and its outputs.

    `recipe` is the float32 recipe if it was asked for; the check is made in any case,
    since every other recipe is held against this model. Raises `VerificationFailed`.
    """
    run.on_progress("verifying float32 against the trained model")
    recipe = recipe or make_recipes(["float32"])[0]
    candidate = float_candidate(recipe, prepared)
    try:
        done, outputs = answers(in_turn(starts(run, prepared, candidate.file, target)), prepared)
    except ToolFailed as error:
        raise _without_its_operators(error) or error from error
    reference = prepared.reference() if prepared.reference else None
    held = _held_to(candidate, prepared)
    examined = examine(
        held,
        examine_graph(held, prepared.keys),
        [
            Compared(key=k, actual=o, expected=reference.arrays(k) if reference else None)
            for k, o in outputs.items()
        ],
        reference="trained model in TensorFlow" if reference else "none: it is the source",
        synthetic=prepared.synthetic,
        runtime=f"{done.runtime} {done.version}",
    )
    return msgspec.structs.replace(examined, candidate=candidate), outputs


def _without_its_operators(error: ToolFailed) -> UnsupportedOperators | None:
    """What it means that the runtime has not some custom operator; None for another failure."""
    if not error.cause.operators:
        return None
    return UnsupportedOperators(
        f"the model has the custom operator {error.cause.operators[0]}, which the runtime does not "
        "have, so nothing made of it could be verified",
        hint="take it out of the model, and compute it in the application",
    )


def _held_to(candidate: Candidate, prepared: Prepared) -> Candidate:
    """The candidate with the limit that can be asked of it.

    A model that was trained in coarser floats differs by its own rounding.
    """
    if not prepared.narrow:
        return candidate
    least = min(candidate.recipe.min_snr_db, MIN_SNR_DB["float16"])
    recipe = msgspec.structs.replace(candidate.recipe, min_snr_db=least)
    return msgspec.structs.replace(candidate, recipe=recipe)


def judge_all(
    run: Run, prepared: Prepared, made: Made, expected: Outputs, target: Target = Target()
) -> Judged:
    """Hold each candidate against the float32 model, two running at a time.

    What did not become a candidate stays the error it is.
    """
    settled: Judged = {r: m for r, m in made.items() if isinstance(m, EdgeconvError)}
    sound: list[tuple[Candidate, ExaminedGraph]] = []
    for recipe, candidate in made.items():
        if isinstance(candidate, EdgeconvError):
            continue
        # What can be read from the file is checked before the file is run.
        try:
            sound.append((candidate, examine_graph(candidate, prepared.keys)))
        except EdgeconvError as error:
            settled[recipe] = error
    # The runtime has only reference kernels for int16x8; the slowest goes first.
    sound.sort(key=lambda pair: pair[0].recipe.name != "int16x8")
    running = in_turn([s for c, _ in sound for s in starts(run, prepared, c.file, target)])
    for number, (candidate, graph) in enumerate(sound):
        run.on_progress(Counted(f"verifying {candidate.recipe.name}", number, len(sound)))
        settled[candidate.recipe] = _verdict(candidate, graph, running, prepared, expected)
    return settled


def second_opinion(
    run: Run, prepared: Prepared, recipe: Recipe, outputs: Outputs, target: Target = Target()
) -> Examined | EdgeconvError:
    """What TFLiteConverter makes of a recipe, judged like any other."""
    try:
        candidate = second_engine(run, prepared, recipe)
    except EdgeconvError as error:
        return error
    return judge_all(run, prepared, {recipe: candidate}, outputs, target)[recipe]


def with_ladder(examined: Examined, steps: Sequence[LadderStep]) -> Examined:
    """`examined` with `steps` before the attempts that it has already."""
    candidate = examined.candidate
    ladder = (*steps, *candidate.ladder)
    return msgspec.structs.replace(
        examined, candidate=msgspec.structs.replace(candidate, ladder=ladder)
    )


def with_warning(examined: Examined, warning: str) -> Examined:
    """`examined` with one more warning."""
    before = examined.verification
    after = msgspec.structs.replace(before, warnings=(*before.warnings, warning))
    return msgspec.structs.replace(examined, verification=after)


def _verdict(
    candidate: Candidate,
    graph: ExaminedGraph,
    running: Iterator[Running],
    prepared: Prepared,
    expected: Outputs,
) -> Examined | EdgeconvError:
    try:
        done, outputs = answers(running, prepared)
        return examine(
            candidate,
            graph,
            [Compared(key=k, actual=o, expected=expected[k]) for k, o in outputs.items()],
            reference="float32 .tflite",
            synthetic=prepared.synthetic,
            runtime=f"{done.runtime} {done.version}",
        )
    except EdgeconvError as error:
        return error


def starts(run: Run, prepared: Prepared, file: Path, target: Target) -> list[Callable[[], Running]]:
    """What starts a file on the held-back samples, a process for each signature."""
    return [functools.partial(_start, run, part, file, target) for part in prepared.parts]


def answers(running: Iterator[Running], prepared: Prepared) -> tuple[RunOfModel, Outputs]:
    """The answers of the next processes of `running`, one for each signature.

    Raises what the first that failed raised, once all of them have had their turn.
    """
    outputs: dict[str, dict[str, NDArray[np.generic]]] = {}
    failed: EdgeconvError | None = None
    done: RunOfModel | None = None
    for part in prepared.parts:
        one = next(running)
        try:
            done = one.result()
            outputs[part.signature.key] = done.outputs
        except EdgeconvError as error:
            failed = failed or error
    if failed is not None or done is None:
        raise failed or AssertionError("no signature")
    return done, outputs


def _start(run: Run, part: Part, file: Path, target: Target) -> Running:
    return start_run(
        file,
        part.split.held_back,
        scratch=run.scratch,
        signature=part.signature.key,
        batch=part.split.batch,
        threads=run.execution.threads,
        target=target,
        allowance=run.execution.allowance,
    )
