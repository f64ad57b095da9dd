"""Going up the ladder: every recipe from the first attempt that gives a good file."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeconv.conversion.ladder import (
    Known,
    Rung,
    explained,
    first_rung,
    has_fused_layers,
    is_curable,
    is_final,
    known_of,
    known_of_failure,
    next_rung,
)
from edgeconv.conversion.prepare import Prepared, prepare
from edgeconv.conversion.quantize import start_first_engine
from edgeconv.conversion.sizes import size_warning
from edgeconv.conversion.target import is_asked, prove, verifying_runtime
from edgeconv.conversion.verify import (
    judge_all,
    judge_float,
    second_opinion,
    with_ladder,
    with_warning,
)
from edgeconv.errors import EdgeconvError
from edgeconv.quantize.verify import is_mostly_float, made_share
from edgeconv.types import LadderStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.conversion.run import Run
    from edgeconv.conversion.verify import Judged, Outputs
    from edgeconv.quantize.candidate import Examined
    from edgeconv.types import Recipe

    Outcome = dict[Recipe, "Good | EdgeconvError"]


# The recipes for weights that TFLiteConverter has.
_TFLITE_HAS = frozenset({"dynamic", "float16"})


@dataclass(frozen=True)
class Good:
    """An examined artifact, what it was made from, and the float32 model's answers."""

    prepared: Prepared
    examined: Examined
    outputs: Outputs


@dataclass(frozen=True)
class _Attempt:
    """One rung tried: what it started from, what each recipe became, the float32 answers."""

    prepared: Prepared
    settled: Judged
    outputs: Outputs


@dataclass
class _Climb:
    """How far a conversion has come: what is good, and why the rest is not.

    `float_bytes` is the size of the first float32 graph that was right.
    """

    good: dict[Recipe, Good] = field(default_factory=dict)
    float_bytes: int = 0
    failures: dict[Recipe, list[tuple[str, EdgeconvError]]] = field(default_factory=dict)

    def fail(self, recipe: Recipe, attempt: str, error: EdgeconvError) -> None:
        """Add what an attempt at a recipe ended in."""
        self.failures.setdefault(recipe, []).append((attempt, error))

    def error(self, recipe: Recipe) -> EdgeconvError | None:
        """Why a recipe is not good, of all its attempts; None where none was made."""
        failures = self.failures.get(recipe)
        return explained(failures) if failures else None

    def goes_on(self, recipe: Recipe) -> bool:
        """Whether another rung may make a recipe that has failed."""
        errors = [error for _, error in self.failures.get(recipe, ())]
        return bool(errors) and is_curable(errors[0]) and not is_final(errors[-1])

    def steps(self, recipe: Recipe) -> tuple[LadderStep, ...]:
        """The attempts that failed, for the manifest."""
        return tuple(
            LadderStep(attempt=attempt, failed=error.headline)
            for attempt, error in self.failures.get(recipe, ())
        )


def make_all(run: Run, recipes: Sequence[Recipe]) -> Outcome:
    """What each recipe became, in the order of `recipes`.

    Raises an `EdgeconvError` where the model gave no float32 graph that is right.
    """
    climb = _Climb()
    rung: Rung | None = first_rung(run.plan)
    last: _Attempt | None = None
    asked: _Attempt | None = None
    while rung is not None:
        remaining = [recipe for recipe in recipes if recipe not in climb.good]
        curable = [r for r in remaining if rung.is_first or climb.goes_on(r)]
        if not curable:
            break
        if not rung.is_first:
            run.on_progress(f"trying again: {rung.text}")
        attempt = _tried(run, rung, curable, climb)
        last = attempt or last
        # A fused layer is quantised as one where that can be: it is smaller than unrolled.
        if attempt and has_fused_layers(attempt.prepared):
            _ask_second_engine(run, attempt, recipes, climb)
            asked = attempt
        rung = next_rung(run.plan, rung, _known(run, attempt, climb.failures.get(curable[0])))
    if last is None:
        raise explained(climb.failures[recipes[0]])
    if last is not asked:
        _ask_second_engine(run, last, recipes, climb)
    _ask_for_more(run, climb)
    if is_asked(run):
        _prove_all(run, climb)
    _warn_of_sizes(climb)
    return {recipe: _outcome(climb, recipe) for recipe in recipes}


def _outcome(climb: _Climb, recipe: Recipe) -> Good | EdgeconvError:
    outcome = climb.good.get(recipe) or climb.error(recipe)
    assert outcome is not None, "each recipe was tried"
    return outcome


def _known(
    run: Run, attempt: _Attempt | None, failures: Sequence[tuple[str, EdgeconvError]] | None
) -> Known:
    if attempt is not None:
        return known_of(attempt.prepared)
    assert failures, "an attempt that gave no graph failed"
    return known_of_failure(run, failures[-1][1].cause)


def _tried(run: Run, rung: Rung, recipes: Sequence[Recipe], climb: _Climb) -> _Attempt | None:
    """One rung; None where it gave no float32 graph that is right. Both go into `climb`."""
    try:
        attempt = _attempt(run, rung, recipes)
    except EdgeconvError as error:
        if rung.is_first and not is_curable(error):
            raise
        for recipe in recipes:
            climb.fail(recipe, rung.text, error)
        return None
    climb.float_bytes = climb.float_bytes or attempt.prepared.float_model.stat().st_size
    for recipe, outcome in attempt.settled.items():
        if isinstance(outcome, EdgeconvError):
            climb.fail(recipe, rung.text, outcome)
        else:
            examined = with_ladder(outcome, climb.steps(recipe))
            climb.good[recipe] = Good(attempt.prepared, examined, attempt.outputs)
    return attempt


def _attempt(run: Run, rung: Rung, recipes: Sequence[Recipe]) -> _Attempt:
    floating = next((recipe for recipe in recipes if recipe.name == "float32"), None)
    first = [r for r in recipes if r.name != "float32" and r.engine != "tflite"]
    with contextlib.ExitStack() as children:
        # Three things side by side: the trained model answers in TensorFlow, the first
        # engine quantises, and the float32 model runs.
        prepared = prepare(run, rung, children)
        made = start_first_engine(run, prepared, first, children)
        # Nothing can be made of a float32 model that is not the trained one.
        where = verifying_runtime(run, prepared.select_ops)
        float_model, outputs = judge_float(run, prepared, floating, where)
        settled = judge_all(run, prepared, made(), outputs, where)
    if floating is not None:
        settled[floating] = float_model
    return _Attempt(prepared, settled, outputs)


def _ask_second_engine(
    run: Run, attempt: _Attempt, recipes: Sequence[Recipe], climb: _Climb
) -> None:
    """Ask TFLiteConverter for what has no good file yet, from the SavedModel of `attempt`."""
    for recipe in recipes:
        failures = climb.failures.get(recipe, ())
        if recipe in climb.good or recipe.name == "float32":
            continue
        # The user's own limits would be spent once more.
        if failures and (recipe.engine == "litert" or is_final(failures[-1][1])):
            continue
        where = verifying_runtime(run, attempt.prepared.select_ops)
        outcome = second_opinion(run, attempt.prepared, recipe, attempt.outputs, where)
        if isinstance(outcome, EdgeconvError):
            text = f"{attempt.prepared.rung.text}, quantized with TFLiteConverter"
            climb.fail(recipe, text, outcome)
        else:
            outcome = with_ladder(outcome, climb.steps(recipe))
            climb.good[recipe] = Good(attempt.prepared, outcome, attempt.outputs)


def _ask_for_more(run: Run, climb: _Climb) -> None:
    """Ask TFLiteConverter for what ai-edge-quantizer left mostly as it was.

    It passes over the weights of fused recurrent layers and of GATHER, and does not say so.
    """
    for recipe, good in tuple(climb.good.items()):
        summary = good.examined.summary
        if recipe.engine != "auto" or good.prepared.saved_model is None:
            continue
        if recipe.name not in _TFLITE_HAS or not is_mostly_float(recipe, summary):
            continue
        other = second_opinion(run, good.prepared, recipe, good.outputs)
        if isinstance(other, EdgeconvError):
            continue
        if made_share(recipe, other.summary) > made_share(recipe, summary):
            left = f"{1 - made_share(recipe, summary):.1%} of the weights stayed float32"
            attempt = f"{good.prepared.rung.text}, quantized with ai-edge-quantizer"
            steps = (*climb.steps(recipe), LadderStep(attempt=attempt, failed=left))
            climb.good[recipe] = Good(good.prepared, with_ladder(other, steps), good.outputs)


def _prove_all(run: Run, climb: _Climb) -> None:
    """Hold what is good against the runtime that it is for."""
    for recipe, good in tuple(climb.good.items()):
        proven = prove(run, good.prepared, good.examined, good.outputs)
        if isinstance(proven, EdgeconvError):
            del climb.good[recipe]
            climb.fail(recipe, "proven on the target runtime", proven)
        else:
            climb.good[recipe] = Good(good.prepared, proven, good.outputs)


def _warn_of_sizes(climb: _Climb) -> None:
    """Say of files that are larger than need be which recipe gave a smaller one."""
    files = {recipe: good.examined.candidate.file for recipe, good in climb.good.items()}
    sizes = {recipe.name: file.stat().st_size for recipe, file in files.items()}
    for recipe, good in tuple(climb.good.items()):
        unrolled = good.prepared.rung.unroll
        warning = size_warning(recipe, sizes, climb.float_bytes, unrolled=unrolled)
        if warning:
            climb.good[recipe] = Good(
                good.prepared, with_warning(good.examined, warning), good.outputs
            )
