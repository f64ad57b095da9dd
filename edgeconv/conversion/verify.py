"""The stage that verifies: look into what was made, run it, compare it with what it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.candidate import Candidate, ComparedOutputs, VerifiedCandidate
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.conversion.output_checks import compare
from edgeconv.conversion.quantize import quantize_with_converter
from edgeconv.errors import EdgeconvError, ToolFailed, UnsupportedOperators
from edgeconv.processes.progress import CountedLine
from edgeconv.processes.workers import start_ahead
from edgeconv.quantize.recipes import MIN_SNR_DB, make_recipes
from edgeconv.types import Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.conversion.candidate import CandidateGraph
    from edgeconv.conversion.prepare import PreparedModel
    from edgeconv.conversion.quantize import Candidates
    from edgeconv.conversion.session import Answers, Outputs, Session
    from edgeconv.types import Recipe

    Outcomes = dict[Recipe, VerifiedCandidate | EdgeconvError]


def verify_float(session: Session, recipe: Recipe | None = None) -> VerifiedCandidate:
    """The float32 model held against the trained one.

    `recipe` is the float32 recipe if it was asked for; the check is made in any case,
    since every other recipe is held against this model. Raises `VerificationFailed`.
    """
    session.run.on_progress("verifying float32 against the trained model")
    prepared = session.prepared
    recipe = recipe or make_recipes(["float32"])[0]
    candidate = Candidate(recipe=recipe, file=prepared.float_model, engine="litert")
    try:
        answers = session.expected
    except ToolFailed as error:
        raise _without_its_operators(error) or error from error
    reference = session.reference
    held = _held_to(candidate, prepared)
    examined = verify_outputs(
        held,
        verify_graph(held, prepared.keys),
        [
            ComparedOutputs(
                key=key, actual=actual, expected=reference.arrays(key) if reference else None
            )
            for key, actual in answers.outputs.items()
        ],
        reference="trained model in TensorFlow" if reference else "none: it is the source",
        synthetic=prepared.synthetic,
        runtime=answers.runtime,
    )
    return msgspec.structs.replace(examined, candidate=candidate)


def _without_its_operators(error: ToolFailed) -> UnsupportedOperators | None:
    """What it means that the runtime has not some custom operator; None for another failure."""
    if not error.cause.operators:
        return None
    return UnsupportedOperators(
        f"the model has the custom operator {error.cause.operators[0]}, which the runtime does not "
        "have, so nothing made of it could be verified",
        hint="take it out of the model, and compute it in the application",
    )


def _held_to(candidate: Candidate, prepared: PreparedModel) -> Candidate:
    """The candidate with the limit that can be asked of it.

    A model that was trained in coarser floats differs by its own rounding.
    """
    if not prepared.narrow:
        return candidate
    least = min(candidate.recipe.min_snr_db, MIN_SNR_DB["float16"])
    recipe = msgspec.structs.replace(candidate.recipe, min_snr_db=least)
    return msgspec.structs.replace(candidate, recipe=recipe)


def verify_candidates(session: Session, made: Candidates) -> Outcomes:
    """Hold each candidate against the float32 model, two running at a time.

    What did not become a candidate stays the error it is.
    """
    settled: Outcomes = {r: m for r, m in made.items() if isinstance(m, EdgeconvError)}
    sound: list[tuple[Candidate, CandidateGraph]] = []
    for recipe, candidate in made.items():
        if isinstance(candidate, EdgeconvError):
            continue
        # What can be read from the file is checked before the file is run.
        try:
            sound.append((candidate, verify_graph(candidate, session.prepared.keys)))
        except EdgeconvError as error:
            settled[recipe] = error
    # The runtime has only reference kernels for int16x8; the slowest goes first.
    sound.sort(key=lambda pair: pair[0].recipe.name != "int16x8")
    starts = [start for c, _ in sound for start in session.starts(c.file, session.where)]
    running = start_ahead(starts)
    for number, (candidate, graph) in enumerate(sound):
        session.run.on_progress(
            CountedLine(f"verifying {candidate.recipe.name}", number, len(sound))
        )
        try:
            answers = session.collect(running)
            settled[candidate.recipe] = _examined(session, candidate, graph, answers)
        except EdgeconvError as error:
            settled[candidate.recipe] = error
    return settled


def convert_with_tflite(session: Session, recipe: Recipe) -> VerifiedCandidate | EdgeconvError:
    """What TFLiteConverter makes of a recipe, judged like any other."""
    try:
        candidate = quantize_with_converter(session, recipe)
    except EdgeconvError as error:
        return error
    return verify_candidates(session, {recipe: candidate})[recipe]


def _examined(
    session: Session, candidate: Candidate, graph: CandidateGraph, answers: Answers
) -> VerifiedCandidate:
    return verify_outputs(
        candidate,
        graph,
        pair_outputs(answers, session.expected.outputs),
        reference="float32 .tflite",
        synthetic=session.prepared.synthetic,
        runtime=answers.runtime,
    )


def pair_outputs(answers: Answers, expected: Outputs) -> list[ComparedOutputs]:
    """A file's answers, each with what is expected."""
    return [
        ComparedOutputs(key=key, actual=actual, expected=expected[key])
        for key, actual in answers.outputs.items()
    ]


def verify_outputs(
    candidate: Candidate,
    graph: CandidateGraph,
    compared: Sequence[ComparedOutputs],
    *,
    reference: str,
    synthetic: bool,
    runtime: str,
) -> VerifiedCandidate:
    """Hold a candidate and its outputs on the held-back samples against the reference.

    Raises `VerificationFailed`.
    """
    errors, doubts = compare(candidate, compared)
    return VerifiedCandidate(
        candidate=candidate,
        summary=graph.summary,
        signatures=graph.signatures,
        verification=Verification(
            reference=reference,
            samples=sum(len(next(iter(one.actual.values()))) for one in compared),
            synthetic=synthetic,
            runtime=runtime,
            outputs=errors,
            warnings=(*graph.warnings, *doubts),
        ),
    )
