"""Which trials are judged by the fresh samples, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tuning.chances import SURE
from edgeconv.tuning.search import cheapest, is_candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.types import Confirmation, Objective, TuningTrial

# Each one looks at the fresh samples, which are a little less fresh for the next.
MOST = 3


def next_to_confirm(
    trials: Sequence[TuningTrial],
    done: Sequence[Confirmation],
    objective: Objective,
    budget: float,
) -> TuningTrial | None:
    """The trial to judge by the fresh samples next; None where that is to end.

    The first two are the cheapest candidates; but after a failure no mix that would fail with
    it, if the fresh samples took as much from it. The last is the cheapest of those that are all
    but sure to be within the budget, or where none is the likeliest.
    """
    if len(done) == MOST or any(one.is_met for one in done):
        return None
    tried = {one.trial for one in done}
    left = [one for one in trials if one.name not in tried and is_candidate(one)]
    if len(done) < MOST - 1:
        more = max((_taken(trials, one) for one in done), default=0.0)
        able = [one for one in left if one.is_uniform or _drop(one) + more <= budget]
        return cheapest(able or left, objective)
    sure = cheapest(left, objective, SURE)
    return sure or max(left, key=lambda one: (one.chance, -one.cost(objective)), default=None)


def closest(trials: Iterable[TuningTrial], done: Sequence[Confirmation]) -> str:
    """The name of the trial that comes nearest to the budget, "" where none was judged."""
    if done:
        return min(done, key=lambda one: one.loss.drop).trial
    judged = [one for one in trials if one.loss is not None]
    if not judged:
        return ""
    return max(judged, key=lambda one: (one.chance, -_drop(one))).name


def _taken(trials: Iterable[TuningTrial], done: Confirmation) -> float:
    """How much more was lost on the fresh samples than on those that searched."""
    searched = next(_drop(one) for one in trials if one.name == done.trial)
    return done.loss.drop - searched


def _drop(trial: TuningTrial) -> float:
    return trial.loss.drop if trial.loss else float("inf")
