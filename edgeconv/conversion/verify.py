"""The stage that verifies: read a file, run it, compare it with its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.calibration_checks import calibration_warnings, refuse_suspect
from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.conversion.output_checks import compare
from edgeconv.conversion.quantize import quantize_with_converter
from edgeconv.errors import EdgeconvError, ToolFailed, UnsupportedOperators
from edgeconv.processes.progress import CountedLine
from edgeconv.processes.workers import start_ahead
from edgeconv.quantize.recipes import MIN_SNR_DB, make_recipes
from edgeconv.types import Verification

if TYPE_CHECKING:
    from edgeconv.conversion.candidate import CandidateGraph
    from edgeconv.conversion.prepare import PreparedModel
    from edgeconv.conversion.quantize import Candidates
    from edgeconv.conversion.session import Answers, Outputs, Session
    from edgeconv.types import Recipe

    Outcomes = dict[Recipe, VerifiedCandidate | EdgeconvError]


def verify_float(session: Session, recipe: Recipe | None = None) -> VerifiedCandidate:
    """The float32 model, verified against the trained one.

    `recipe` is the user's float32 recipe, if there is one. Every other recipe is verified against
    this model. Raises `VerificationFailed`.
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
    limited = _with_possible_limit(candidate, prepared)
    verified = verify_outputs(
        session,
        limited,
        verify_graph(limited, prepared.keys),
        answers,
        {key: reference.arrays(key) for key in answers.outputs} if reference else None,
        reference="trained model in TensorFlow" if reference else "none: it is the source",
    )
    return msgspec.structs.replace(verified, candidate=candidate)


def _without_its_operators(error: ToolFailed) -> UnsupportedOperators | None:
    """The error for a custom operator that the runtime does not have; None for another failure."""
    if not error.cause.operators:
        return None
    return UnsupportedOperators(
        f"the model has the custom operator {error.cause.operators[0]}, which the runtime does not "
        "have, so nothing made of it could be verified",
        hint="take it out of the model, and compute it in the application",
    )


def _with_possible_limit(candidate: Candidate, prepared: PreparedModel) -> Candidate:
    """The candidate with the limit that it can keep.

    A model that was trained in coarser floats differs by its rounding.
    """
    if not prepared.narrow:
        return candidate
    least = min(candidate.recipe.min_snr_db, MIN_SNR_DB["float16"])
    recipe = msgspec.structs.replace(candidate.recipe, min_snr_db=least)
    return msgspec.structs.replace(candidate, recipe=recipe)


def verify_candidates(session: Session, candidates: Candidates) -> Outcomes:
    """Verify each candidate against the float32 model, two running at a time.

    A recipe without a candidate keeps its error.
    """
    outcomes: Outcomes = {}
    sound: list[tuple[Candidate, CandidateGraph]] = []
    for recipe, candidate in candidates.items():
        if isinstance(candidate, EdgeconvError):
            outcomes[recipe] = candidate
            continue
        # What can be read from the file is verified before the file is run.
        try:
            refuse_suspect(session, recipe)
            sound.append((candidate, verify_graph(candidate, session.prepared.keys)))
        except EdgeconvError as error:
            outcomes[recipe] = error
    # The runtime has only reference kernels for int16x8; the slowest goes first.
    sound.sort(key=lambda pair: pair[0].recipe.name != "int16x8")
    starts = [start for c, _ in sound for start in session.starts(c.file, session.where, c.recipe)]
    running = start_ahead(starts)
    for number, (candidate, graph) in enumerate(sound):
        name = candidate.recipe.name
        session.run.on_progress(CountedLine(f"verifying {name}", number, len(sound)))
        try:
            answers = session.collect(running)
            outcomes[candidate.recipe] = verify_outputs(
                session,
                candidate,
                graph,
                answers,
                session.some_outputs(session.expected.outputs, candidate.recipe),
                reference="float32 .tflite",
            )
        except EdgeconvError as error:
            outcomes[candidate.recipe] = error
    return outcomes


def convert_with_tflite(session: Session, recipe: Recipe) -> VerifiedCandidate | EdgeconvError:
    """The verified file that TFLiteConverter makes of a recipe, or its error."""
    try:
        candidate = quantize_with_converter(session, recipe)
    except EdgeconvError as error:
        return error
    return verify_candidates(session, {recipe: candidate})[recipe]


def verify_outputs(
    session: Session,
    candidate: Candidate,
    graph: CandidateGraph,
    answers: Answers,
    expected: Outputs | None,
    *,
    reference: str,
) -> VerifiedCandidate:
    """Verify a candidate's outputs on the held-back samples against those of its reference.

    Raises `VerificationFailed`.
    """
    errors, warnings = compare(candidate, answers.outputs, expected)
    return VerifiedCandidate(
        candidate=candidate,
        summary=graph.summary,
        signatures=graph.signatures,
        verification=Verification(
            reference=reference,
            samples=sum(len(next(iter(arrays.values()))) for arrays in answers.outputs.values()),
            synthetic=session.prepared.synthetic,
            runtime=answers.runtime,
            outputs=errors,
            warnings=(
                *graph.warnings,
                *warnings,
                *calibration_warnings(session, candidate.recipe),
            ),
        ),
    )
