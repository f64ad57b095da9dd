"""The stage that verifies: read a file, run it, compare it with its reference."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.batches import refuse_dependent_samples, verify_batches
from edgeconv.conversion.calibration_checks import (
    calibration_warnings,
    refuse_suspect,
    refuse_untaken,
)
from edgeconv.conversion.candidate import Candidate, CandidateGraph, VerifiedCandidate
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.conversion.output_checks import compare, errors_by_sample
from edgeconv.conversion.session import quantize_with_converter, start_quantizing
from edgeconv.conversion.states import state_warnings
from edgeconv.requests.recipes import make_recipes
from edgeconv.statistics.grades import worst_grade
from edgeconv.system.processes.workers import start_ahead
from edgeconv.types import Recipe, Verification
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import (
    EdgeconvError,
    SuspectCalibration,
    ToolFailed,
    UnsupportedOperators,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.conversion.prepare import PreparedModel
    from edgeconv.conversion.session import Answers, Candidates, Outputs, Session
    from edgeconv.runtimes.local import StoredRun

    Outcomes = dict[Recipe, VerifiedCandidate | EdgeconvError]


# What the float32 model of one that was trained in floats of 16 bits keeps.
_NARROW_DB = 30.0


def verify_float(session: Session, recipe: Recipe | None = None) -> VerifiedCandidate:
    """The float32 model, verified against the trained one.

    `recipe` is the user's float32 recipe, if there is one. Every other recipe is verified against
    this model. It is done once in a session. Raises `VerificationFailed`.
    """
    recipe = recipe or make_recipes(["float32"])[0]
    if recipe not in session.float_models:
        session.float_models[recipe] = _verify_float(session, recipe)
    return session.float_models[recipe]


def _verify_float(session: Session, recipe: Recipe) -> VerifiedCandidate:
    prepared = session.prepared
    candidate = Candidate(recipe=recipe, file=prepared.float_model, engine="litert")
    try:
        answers = session.expected
    except ToolFailed as error:
        # Samples that the trained model does not take either are refused as such.
        refuse_untaken(session)
        raise _without_its_operators(error) or error from error
    refuse_untaken(session)
    reference = session.reference
    refuse_dependent_samples(session)
    limited = _with_possible_limit(candidate, prepared)
    graph = verify_graph(limited, prepared.keys)
    verified = verify_outputs(
        session,
        limited,
        graph,
        answers,
        {key: reference.arrays(key) for key in answers.outputs} if reference else None,
        reference="trained model in TensorFlow" if reference else "none: it is the source",
    )
    verify_batches(session, candidate, graph.signatures, answers.outputs)
    return msgspec.structs.replace(verified, candidate=candidate)


def while_float_is_right(
    session: Session, recipe: Recipe | None, candidates: Candidates
) -> Candidates:
    """The candidates, until the trained model has answered and the float32 model is wrong.

    Nothing made of such a model is of use. Raises as `verify_float` does.
    """
    for candidate in candidates:
        if session.has_reference:
            verify_float(session, recipe)
        yield candidate


def _without_its_operators(error: ToolFailed) -> UnsupportedOperators | None:
    """The error for a custom operator that the runtime does not have; None for another failure."""
    if not error.cause.operators:
        return None
    return UnsupportedOperators(
        f"the model has the custom operator {error.cause.operators[0]}, which the runtime does not "
        "have, so no file made from it could be verified",
        hint="take it out of the model, and compute it in the application",
    )


def _with_possible_limit(candidate: Candidate, prepared: PreparedModel) -> Candidate:
    """The candidate with the limit that it can keep.

    A model that was trained in coarser floats differs by its rounding.
    """
    if not prepared.narrow:
        return candidate
    least_db = candidate.recipe.min_snr_db or _NARROW_DB
    recipe = msgspec.structs.replace(candidate.recipe, min_snr_db=min(least_db, _NARROW_DB))
    return msgspec.structs.replace(candidate, recipe=recipe)


def verify_candidates(session: Session, candidates: Candidates) -> Outcomes:
    """Verify each candidate against the float32 model, and the samples that calibrated it.

    A recipe without a candidate keeps its error.
    """
    return with_calibration_checked(session, compare_candidates(session, candidates))


def verified(session: Session, candidate: Candidate) -> VerifiedCandidate:
    """The candidate, verified. Raises the `EdgeconvError` that it ended in."""
    recipe = candidate.recipe
    if recipe.name == "float32":
        return verify_float(session, recipe)
    outcome = verify_candidates(session, iter([(recipe, candidate)]))[recipe]
    if isinstance(outcome, EdgeconvError):
        raise outcome
    return outcome


def compare_candidates(session: Session, candidates: Candidates) -> Outcomes:
    """Compare each candidate with the float32 model, which waits for nothing but those two.

    A file is run as soon as it is there, while the next is made, two running at a time.
    """
    outcomes: Outcomes = {}
    sound: deque[tuple[Candidate, CandidateGraph]] = deque()

    def starts() -> Iterator[Callable[[], StoredRun]]:
        for recipe, candidate in candidates:
            if isinstance(candidate, EdgeconvError):
                outcomes[recipe] = candidate
                continue
            # What can be read from the file is verified before the file is run.
            try:
                sound.append((candidate, verify_graph(candidate, session.prepared.keys)))
            except EdgeconvError as error:
                outcomes[recipe] = error
            else:
                yield from session.starts(candidate.file, session.where, recipe)

    running = start_ahead(starts())
    for first in running:
        candidate, graph = sound.popleft()
        recipe = candidate.recipe
        session.run.on_progress(f"verifying {recipe.name}")
        try:
            answers = session.collect(itertools.chain((first,), running))
            expected = session.some_outputs(session.expected.outputs, recipe)
            verified = verify_outputs(
                session, candidate, graph, answers, expected, reference="float32 .tflite"
            )
            verify_batches(session, candidate, graph.signatures, answers.outputs)
            verified = verified.with_warnings(state_warnings(candidate, session.prepared.parts))
            if candidate.may_compete:
                errors = errors_by_sample(candidate, answers.outputs, expected)
                verified = msgspec.structs.replace(verified, errors=errors)
            outcomes[recipe] = verified
        except EdgeconvError as error:
            outcomes[recipe] = error
    return outcomes


def with_calibration_checked(session: Session, outcomes: Outcomes) -> Outcomes:
    """The outcomes with what is suspicious about the samples that calibrated them.

    This waits for the trained model. Samples that cannot be right refuse a recipe, also one that
    has failed; but one of weights alone is made again without them.
    """
    checked: Outcomes = {}
    for recipe, outcome in outcomes.items():
        try:
            refuse_suspect(session, recipe, used=_used_samples(recipe, outcome))
        except SuspectCalibration as error:
            again = None if recipe.has_ranges else _without_samples(session, recipe)
            checked[recipe] = again or error
            continue
        checked[recipe] = outcome
        if isinstance(outcome, VerifiedCandidate) and _used_samples(recipe, outcome):
            checked[recipe] = outcome.with_warnings(calibration_warnings(session, recipe))
    return checked


def _without_samples(session: Session, recipe: Recipe) -> VerifiedCandidate | None:
    """The verified file that no method made with samples; None where the user named methods.

    Or where it needs them: 4 bits do.
    """
    if recipe.methods != ("auto",) or recipe.engine == "tflite" or recipe.has_four_bits:
        return None
    plain = msgspec.structs.replace(recipe, methods=())
    made = compare_candidates(session, start_quantizing(session, [plain]))[plain]
    if not isinstance(made, VerifiedCandidate):
        return None
    note = f"{NOT_TRIED}: the calibration samples cannot be what the model was trained on"
    candidate = msgspec.structs.replace(made.candidate, recipe=recipe, notes=(note,))
    return msgspec.structs.replace(made, candidate=candidate)


def _used_samples(recipe: Recipe, outcome: VerifiedCandidate | EdgeconvError) -> bool:
    """Whether samples shaped a file, for its ranges or by methods; "auto" may have used none."""
    if recipe.needs_samples or not isinstance(outcome, VerifiedCandidate):
        return recipe.needs_samples
    record = outcome.candidate.post_training
    return record is not None and bool(record.methods)


def convert_with_tflite(
    session: Session, recipe: Recipe, most_samples: int | None = None
) -> VerifiedCandidate | EdgeconvError:
    """The verified file that TFLiteConverter makes of a recipe, or its error.

    With `most_samples` it is the one of so many at most, without methods.
    """
    try:
        candidate = quantize_with_converter(session, recipe, most_samples)
    except EdgeconvError as error:
        return error
    return verify_candidates(session, iter([(recipe, candidate)]))[recipe]


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
        floats=graph.floats,
        unruled=graph.unruled,
        verification=Verification(
            reference=reference,
            samples=sum(len(next(iter(arrays.values()))) for arrays in answers.outputs.values()),
            synthetic=session.prepared.synthetic,
            runtime=answers.runtime,
            outputs=errors,
            grade=worst_grade(error.grade for error in errors),
            warnings=(*graph.warnings, *warnings),
        ),
    )
