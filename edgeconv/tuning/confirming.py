"""Searching and confirming by turns, until something is confirmed or a limit is reached."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from edgeconv.processes.progress import CountedLine
from edgeconv.quantize.equalization.equalize import has_pairs
from edgeconv.tflite import float_layers
from edgeconv.tuning.chances import LIKELY, LIKELY_OF_MANY, SURE
from edgeconv.tuning.notes import progress_line
from edgeconv.tuning.recipes import uniform_recipes
from edgeconv.tuning.search import Space, cheapest, is_candidate, search
from edgeconv.tuning.trials import TimeIsUp
from edgeconv.types import Confirmation, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.requests.tune import TuneRequest
    from edgeconv.tuning.evaluator import Evaluator
    from edgeconv.tuning.trials import TrialRunner
    from edgeconv.types import Objective, Recipe

Stopped = Literal["", "time", "trials"]
# Each confirmation uses the fresh samples, which are a little less fresh for the next.
MOST = 3


class SearchResult(NamedTuple):
    """All trials, the confirmations, met or not, and the limit that ended the search."""

    trials: tuple[TuningTrial, ...]
    confirmations: tuple[Confirmation, ...]
    stopped: Stopped


def search_and_confirm(
    runner: TrialRunner, request: TuneRequest, calibration: int, fresh: Evaluator
) -> SearchResult:
    """Search and confirm; `calibration` counts the samples that calibrate.

    Once a trial is likely enough to be within the budget, recipes that must be larger are not
    tried. Where it turns out not to be, the search goes on to likelier ones, and last to one that
    is all but sure.
    """
    floating = runner.model.read_bytes()
    space = Space(
        objective=request.objective,
        uniform=uniform_recipes(request, calibration, equalizes=has_pairs(floating)),
        weights=sum(layer.weights for layer in float_layers(floating)),
        sensitivities=runner.sensitivities,
    )
    trials: dict[Recipe, TuningTrial] = {}
    confirmations: list[Confirmation] = []
    stopped: Stopped = ""
    for most, enough in enumerate((LIKELY, LIKELY_OF_MANY, SURE), start=1):
        stopped = _search_on(runner, request.trials, space, enough, trials)
        known = list(trials.values())
        while len(confirmations) < (MOST if stopped else most):
            trial = next_to_confirm(known, confirmations, request.objective, request.max_drop)
            if trial is None:
                break
            confirmations.append(_confirm(runner, trial, fresh))
        if stopped or any(confirmation.is_met for confirmation in confirmations):
            break
    return SearchResult(tuple(trials.values()), tuple(confirmations), stopped)


def _search_on(
    runner: TrialRunner,
    most: int,
    space: Space,
    enough: float,
    trials: dict[Recipe, TuningTrial],
) -> Stopped:
    """Put every trial into `trials`, each with another name; returns the limit that was reached."""

    def measure(recipe: Recipe) -> TuningTrial:
        return trials.get(recipe) or _with_unique_name(runner.trial(recipe), trials.values())

    try:
        for trial in search(space, measure, enough):
            if trial.recipe in trials:
                continue
            trials[trial.recipe] = trial
            line = progress_line(list(trials.values()), space.objective)
            runner.on_progress(CountedLine(line, len(trials), most))
            if len(trials) >= most:
                return "trials"
            if time.monotonic() >= runner.end_s:
                return "time"
    except TimeIsUp:
        return "time"
    return ""


def _with_unique_name(trial: TuningTrial, others: Iterable[TuningTrial]) -> TuningTrial:
    name = trial.name
    same = sum(other.name == name or other.name.startswith(f"{name} (") for other in others)
    return msgspec.structs.replace(trial, name=f"{name} ({same + 1})") if same else trial


def _confirm(runner: TrialRunner, trial: TuningTrial, fresh: Evaluator) -> Confirmation:
    runner.on_progress(f"confirming {trial.name} on {fresh.samples} fresh samples")
    loss = fresh.loss(runner.file(trial.recipe))
    return Confirmation(trial=trial.name, loss=loss, is_met=loss.drop <= runner.budget)


def next_to_confirm(
    trials: Sequence[TuningTrial],
    confirmations: Sequence[Confirmation],
    objective: Objective,
    budget: float,
) -> TuningTrial | None:
    """The trial to evaluate on the fresh samples next; None where no more is to be confirmed.

    The first two are the cheapest candidates; but after a failure no mix, and no other methods of
    the same recipe, that would also fail if the fresh samples took as much from it. The last is the
    cheapest of those that are all but sure to be within the budget, or else the likeliest.
    """
    if len(confirmations) == MOST or any(earlier.is_met for earlier in confirmations):
        return None
    tried = {earlier.trial for earlier in confirmations}
    left = [trial for trial in trials if trial.name not in tried and is_candidate(trial)]
    if len(confirmations) < MOST - 1:
        more = max((_lost_more(trials, earlier) for earlier in confirmations), default=0.0)
        failed = {trial.recipe.name for trial in trials if trial.name in tried}
        able = [
            trial
            for trial in left
            if (trial.is_uniform and trial.recipe.name not in failed)
            or _drop(trial) + more <= budget
        ]
        return cheapest(able or left, objective)
    sure = cheapest(left, objective, SURE)
    return sure or max(left, key=lambda trial: (trial.chance, -trial.cost(objective)), default=None)


def closest(trials: Iterable[TuningTrial], confirmations: Sequence[Confirmation]) -> str:
    """The name of the trial that comes nearest to the budget, "" where none was evaluated."""
    if confirmations:
        return min(confirmations, key=lambda confirmation: confirmation.loss.drop).trial
    evaluated = [trial for trial in trials if trial.loss is not None and not trial.error]
    if not evaluated:
        return ""
    return max(evaluated, key=lambda trial: (trial.chance, -_drop(trial))).name


def _lost_more(trials: Iterable[TuningTrial], confirmation: Confirmation) -> float:
    """How much more was lost on the fresh samples than on the search samples."""
    searched = next(_drop(trial) for trial in trials if trial.name == confirmation.trial)
    return confirmation.loss.drop - searched


def _drop(trial: TuningTrial) -> float:
    return trial.loss.drop if trial.loss else float("inf")
