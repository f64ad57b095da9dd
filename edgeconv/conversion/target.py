"""Verifies an artifact on its target runtime, and replaces it where it does not run there.

Loading is not enough: an older runtime can take a model with operators that it knows only partly,
and answer nonsense without an error. So the outputs are compared there as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.conversion.graph_checks import converted_share
from edgeconv.conversion.output_checks import compare
from edgeconv.conversion.session import start_quantizing
from edgeconv.conversion.verify import convert_with_tflite, verified, verify_candidates
from edgeconv.reporting.closeness import worst_snr
from edgeconv.reporting.units import decibels, percent
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.isolated import installed
from edgeconv.statistics.outputs import LEAST_AGREEMENT, is_another, output_errors
from edgeconv.types import LadderStep, OutputError, Recipe, TargetCheck, TargetRuntime
from edgeconv.types.errors import EdgeconvError, VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.conversion.run import Run
    from edgeconv.conversion.session import Outputs, Session
    from edgeconv.runtimes.local import RuntimePython

_ANOTHER_RECIPE = "choose another recipe for this runtime"
_HAS_DENSE_WEIGHTS = frozenset({"dynamic", "weight-only-int8", "int8", "int16x8"})


def has_target(run: Run) -> bool:
    """Whether artifacts are for another runtime than the one that verifies."""
    return run.plan.request.target_runtime != TargetRuntime()


def verify_on_target(
    session: Session, examined: VerifiedCandidate, expected: Outputs
) -> VerifiedCandidate | EdgeconvError:
    """`examined` with its run on the target runtime, or another file that runs there.

    `expected` are the outputs that it must give there. An error says why no file does.
    """
    run = session.run
    runtime = str(run.plan.request.target_runtime)
    target = session.target
    recipe = examined.candidate.recipe
    run.on_progress(f"running {recipe.name} on {runtime}")
    first = _run_on_target(session, examined, expected, target, cost="")
    if not isinstance(first, EdgeconvError):
        return first
    steps: tuple[LadderStep, ...] = (LadderStep(attempt=f"on {runtime}", failed=first.headline),)
    for cost, other in _others(session, examined):
        if isinstance(other, EdgeconvError):
            steps = (*steps, LadderStep(attempt=cost, failed=other.headline))
            continue
        spent = f"{cost}; {_difference(examined, other)}"
        second = _run_on_target(session, other, expected, target, cost=spent)
        if not isinstance(second, EdgeconvError):
            return second.with_ladder((*examined.candidate.ladder, *steps))
        steps = (*steps, LadderStep(attempt=cost, failed=second.headline))
    tried = "".join(f"\n  tried: {step.attempt}: {step.failed}" for step in steps[1:])
    return VerificationFailed(
        f"{recipe.name} does not run right on {runtime}: {first.message}{tried}",
        hint=_next(session),
    )


def _next(session: Session) -> str:
    if not session.target.gpu:
        return f"{_ANOTHER_RECIPE}; `edgeconv inspect` says which operators need a newer one"
    plan = session.run.plan
    is_open = any(part.signature.has_open_batch for part in session.prepared.parts)
    if is_open and plan.request.batch is None and plan.model.kind != "tflite":
        return (
            f"add --batch 1: the delegate refuses graphs that compute shapes; or {_ANOTHER_RECIPE}"
        )
    return _ANOTHER_RECIPE


def _run_on_target(
    session: Session,
    examined: VerifiedCandidate,
    expected: Outputs,
    target: RuntimePython,
    *,
    cost: str,
) -> VerifiedCandidate | EdgeconvError:
    candidate = examined.candidate
    try:
        answers = session.answers(candidate.file, target, candidate.recipe)
        some = session.some_outputs(expected, candidate.recipe)
        errors, warnings = compare(candidate, answers.outputs, some)
        _refuse_other_kernels(examined, errors)
        if target.gpu:
            _refuse_other_answers(session, examined, errors)
    except EdgeconvError as error:
        return error
    environment = installed(target)
    # An emulated runtime has the package of another one.
    wish = session.run.plan.request.target_runtime
    check = TargetCheck(
        runtime=f"{wish.name} {wish.version}" if target.root else answers.runtime,
        python=environment.python if environment else "",
        outputs=errors,
        cost="; ".join(filter(None, (cost, *warnings))),
    )
    return msgspec.structs.replace(examined, target=check)


def _refuse_other_kernels(examined: VerifiedCandidate, there: tuple[OutputError, ...]) -> None:
    """Raise `VerificationFailed` where an output is further off there than where it was verified.

    Kernels round differently, which costs next to nothing. A runtime that ignores what it does not
    know, such as all scales of a channel but the first, answers without an error.
    """
    here = {error.output: error for error in examined.verification.outputs}
    for error in there:
        verified = here.get(error.output)
        if verified is None or verified.snr_db is None or error.snr_db is None:
            continue
        if is_another(error.snr_db, verified.snr_db):
            raise VerificationFailed(
                f"output {error.output!r}: SNR {decibels(error.snr_db)} on this runtime, and "
                f"{decibels(verified.snr_db)} in LiteRT: this runtime's kernels compute different "
                "results",
                hint=_ANOTHER_RECIPE,
            )


def _refuse_other_answers(
    session: Session, examined: VerifiedCandidate, there: tuple[OutputError, ...]
) -> None:
    """Raise `VerificationFailed` where too many answers are not those of float32.

    A delegate may compute something else only now and then, so the samples that calibrate count
    as well.
    """
    here = {error.output: error for error in examined.verification.outputs}
    may_flip = any(error.argmax_agreement is not None for error in there)
    more = _of_calibrating(session, examined.candidate) if may_flip else {}
    for error in there:
        if error.argmax_agreement is None:
            continue
        share, count = _pooled(error, more.get(error.output))
        if share >= LEAST_AGREEMENT:
            continue
        own = here.get(error.output)
        on_processor = ""
        if own is not None and own.argmax_agreement is not None:
            own_share = percent(own.argmax_agreement, 1)
            on_processor = f", and {own_share} of {own.samples} on the processor"
        raise VerificationFailed(
            f"output {error.output!r}: {percent(share, 1)} of {count} answers on this runtime are "
            f"those of float32{on_processor}; {percent(LEAST_AGREEMENT, 0)} must be",
            hint=_ANOTHER_RECIPE,
        )


def _of_calibrating(session: Session, candidate: Candidate) -> dict[str, OutputError]:
    """The errors there on samples that calibrate."""
    errors = {}
    for every in session.calibrating:
        stored = session.affordable(candidate.recipe, every)
        answers = session.answers_to(stored.part, stored.samples, candidate.file, session.target)
        several = len(session.prepared.parts) > 1
        prefix = f"{stored.part.signature.key}/" if several else ""
        for error in output_errors(stored.outputs, answers, {}):
            errors[prefix + error.output] = error
    return errors


def _pooled(first: OutputError, second: OutputError | None) -> tuple[float, int]:
    """The share of equal answers over the samples of both, and how many these are."""
    both = [
        (error.argmax_agreement, error.samples)
        for error in (first, second)
        if error is not None and error.argmax_agreement is not None
    ]
    count = sum(samples for _, samples in both)
    return sum(share * samples for share, samples in both) / count, count


def right_recipe(session: Session, right: Mapping[Recipe, VerifiedCandidate]) -> str:
    """The recipe to take where others are refused on a GPU, as a hint; "" where none is known.

    The smallest file of those that are `right` there, else float16 or float32, made and run there.
    """
    if not session.target.gpu:
        return ""
    files = dict(right)
    for name in ("float16", "float32"):
        if files:
            break
        (recipe,) = make_recipes([name])
        try:
            examined = verified(session, session.candidate(recipe))
        except EdgeconvError:
            continue
        expected = session.expected.outputs
        outcome = _run_on_target(session, examined, expected, session.target, cost="")
        if isinstance(outcome, VerifiedCandidate):
            files[recipe] = outcome
    if not files:
        return ""
    best = min(files, key=lambda recipe: files[recipe].candidate.file.stat().st_size)
    target = files[best].target
    outputs = target.outputs if target else ()
    shares = [e.argmax_agreement for e in outputs if e.argmax_agreement is not None]
    known = f": {percent(min(shares), 1)} of the answers are float32's" if shares else ""
    return f"choose {best.name}, which is right on this runtime{known}"


def _others(
    session: Session, examined: VerifiedCandidate
) -> Iterator[tuple[str, VerifiedCandidate | EdgeconvError]]:
    """Other files that may run where `examined` does not, each after a text of what it gives up."""
    recipe = examined.candidate.recipe
    if examined.candidate.engine == "litert" and recipe.name in _HAS_DENSE_WEIGHTS:
        candidates = start_quantizing(session, [recipe], dense_per_tensor=True)
        yield (
            "dense layers have one weight scale each",
            verify_candidates(session, candidates)[recipe],
        )
    if examined.candidate.engine != "tflite" and recipe.engine == "auto":
        other = convert_with_tflite(session, recipe)
        yield "quantized with TFLiteConverter", _unless_untouched(examined, other)


def _unless_untouched(
    examined: VerifiedCandidate, other: VerifiedCandidate | EdgeconvError
) -> VerifiedCandidate | EdgeconvError:
    """`other`, or an error where it is the float32 model, and `examined` is not.

    TFLiteConverter leaves small layers as they are. Such a file runs everywhere, but is not what
    was requested.
    """
    recipe = examined.candidate.recipe
    if isinstance(other, EdgeconvError) or converted_share(recipe, other.summary):
        return other
    if not converted_share(recipe, examined.summary):
        return other
    return VerificationFailed(
        f"{recipe.name}: every layer is too small for TFLiteConverter, which quantized none"
    )


def _difference(before: VerifiedCandidate, after: VerifiedCandidate) -> str:
    """What the change costs: the worst output's SNR, the size, and weights left in float."""

    def worst(examined: VerifiedCandidate) -> str:
        return decibels(worst_snr(examined.verification.outputs))

    def size(examined: VerifiedCandidate) -> int:
        return examined.candidate.file.stat().st_size

    recipe = before.candidate.recipe
    was, now = (converted_share(recipe, each.summary) for each in (before, after))
    left = f", {percent(now, 1)} of the weights instead of {percent(was, 1)}" if now < was else ""
    return (
        f"an SNR of {worst(after)} instead of {worst(before)}, {size(after):,} bytes instead of "
        f"{size(before):,}{left}"
    )
