"""Going up the ladder: every recipe from the first attempt that gives a good file."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeconv.errors import EdgeconvError
from edgeconv.nouns import LadderStep
from edgeconv.stages.judge import judge_all, judge_float, second_opinion, with_ladder
from edgeconv.stages.ladder import Rung, first_rung, is_curable, next_rung
from edgeconv.stages.make import start_first_engine
from edgeconv.stages.prepare import Prepared, prepare
from edgeconv.stages.target import is_asked, prove, verifying_runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.nouns import Recipe
    from edgeconv.quantize.candidate import Examined
    from edgeconv.stages import Run
    from edgeconv.stages.judge import Judged, Outputs

    Outcome = dict[Recipe, "Good | EdgeconvError"]


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
    """How far a conversion has come: what is good, and why the rest is not."""

    good: dict[Recipe, Good] = field(default_factory=dict)
    errors: dict[Recipe, EdgeconvError] = field(default_factory=dict)
    steps: dict[Recipe, tuple[LadderStep, ...]] = field(default_factory=dict)


def make_all(run: Run, recipes: Sequence[Recipe]) -> Outcome:
    """What each recipe became, in the order of `recipes`.

    Raises an `EdgeconvError` where the model gave no float32 graph that is right.
    """
    climb = _Climb()
    rung: Rung | None = first_rung(run.plan)
    last: _Attempt | None = None
    while rung is not None:
        remaining = [recipe for recipe in recipes if recipe not in climb.good]
        curable = [r for r in remaining if rung.is_first or _is_curable(climb.errors.get(r))]
        if not curable:
            break
        if not rung.is_first:
            run.on_progress(f"trying again: {rung.text}")
        attempt = _tried(run, rung, curable, climb)
        last = attempt or last
        rung = next_rung(run.plan, rung, attempt.prepared if attempt else None)
    if last is None:
        raise _none_converted(climb, recipes)
    _ask_second_engine(run, last, recipes, climb)
    if is_asked(run):
        _prove_all(run, climb)
    return {recipe: climb.good.get(recipe) or climb.errors[recipe] for recipe in recipes}


def _is_curable(error: EdgeconvError | None) -> bool:
    return error is not None and is_curable(error)


def _tried(run: Run, rung: Rung, recipes: Sequence[Recipe], climb: _Climb) -> _Attempt | None:
    """One rung; None where it gave no float32 graph that is right. Both go into `climb`."""
    try:
        attempt = _attempt(run, rung, recipes)
    except EdgeconvError as error:
        if not is_curable(error):
            raise
        for recipe in recipes:
            _note_failure(climb, recipe, rung.text, error)
        return None
    for recipe, outcome in attempt.settled.items():
        if isinstance(outcome, EdgeconvError):
            _note_failure(climb, recipe, rung.text, outcome)
        else:
            examined = with_ladder(outcome, climb.steps.get(recipe, ()))
            climb.good[recipe] = Good(attempt.prepared, examined, attempt.outputs)
    return attempt


def _note_failure(climb: _Climb, recipe: Recipe, attempt: str, error: EdgeconvError) -> None:
    step = LadderStep(attempt=attempt, failed=error.message)
    climb.steps[recipe] = (*climb.steps.get(recipe, ()), step)
    before = climb.errors.get(recipe)
    if before is not None and before.message != error.message:
        both = f"{before.message}\n  then, with {attempt}: {error.message}"
        error = type(error)(both, hint=error.hint or before.hint)
    climb.errors[recipe] = error


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


def _ask_second_engine(run: Run, last: _Attempt, recipes: Sequence[Recipe], climb: _Climb) -> None:
    """Ask TFLiteConverter for what has no good file yet, from the last float32 graph."""
    for recipe in recipes:
        first = climb.errors.get(recipe)
        if recipe in climb.good or recipe.name == "float32":
            continue
        if first is not None and recipe.engine == "litert":
            continue
        where = verifying_runtime(run, last.prepared.select_ops)
        outcome = second_opinion(run, last.prepared, recipe, first, last.outputs, where)
        if isinstance(outcome, EdgeconvError):
            climb.errors[recipe] = outcome
        else:
            outcome = with_ladder(outcome, climb.steps.get(recipe, ()))
            climb.good[recipe] = Good(last.prepared, outcome, last.outputs)


def _prove_all(run: Run, climb: _Climb) -> None:
    """Hold what is good against the runtime that it is for."""
    for recipe, good in tuple(climb.good.items()):
        proven = prove(run, good.prepared, good.examined, good.outputs)
        if isinstance(proven, EdgeconvError):
            del climb.good[recipe]
            climb.errors[recipe] = proven
        else:
            climb.good[recipe] = Good(good.prepared, proven, good.outputs)


def _none_converted(climb: _Climb, recipes: Sequence[Recipe]) -> EdgeconvError:
    return climb.errors[recipes[0]]
