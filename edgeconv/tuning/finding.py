"""Searching and confirming in turns, until something is confirmed or a limit is reached."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from edgeconv.processes.progress import CountedLine
from edgeconv.tflite import float_layers
from edgeconv.tuning.asked import uniform
from edgeconv.tuning.chances import LIKELY, LIKELY_OF_MANY, SURE
from edgeconv.tuning.confirming import MOST, next_to_confirm
from edgeconv.tuning.notes import progress_line
from edgeconv.tuning.search import Space, search
from edgeconv.tuning.trials import TimeIsUp
from edgeconv.types import Confirmation, TuningTrial

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.tuning.asked import Limits, Wanted
    from edgeconv.tuning.judge import Evaluator
    from edgeconv.tuning.trials import TrialRunner
    from edgeconv.types import Recipe

Stopped = Literal["", "time", "trials"]


class SearchResult(NamedTuple):
    """The trials, those that were confirmed or not, and the limit that ended the search."""

    trials: tuple[TuningTrial, ...]
    confirmations: tuple[Confirmation, ...]
    stopped: Stopped


def search_and_confirm(
    runner: TrialRunner, wanted: Wanted, limits: Limits, calibration: int, fresh: Evaluator
) -> SearchResult:
    """Search and confirm, `calibration` being how many samples calibrate.

    Once a trial is likelier than not to do, what must be larger is not made. Where it turns out
    that it does not, the search goes on to likelier ones, and last to one that is all but sure.
    """
    space = Space(
        objective=runner.objective,
        uniform=uniform(wanted, calibration),
        weights=sum(layer.weights for layer in float_layers(runner.model.read_bytes())),
        sensitivities=runner.sensitivities,
    )
    trials: dict[Recipe, TuningTrial] = {}
    confirmations: list[Confirmation] = []
    stopped: Stopped = ""
    for most, enough in enumerate((LIKELY, LIKELY_OF_MANY, SURE), start=1):
        stopped = _search_on(runner, limits, space, enough, trials)
        known = list(trials.values())
        while len(confirmations) < (MOST if stopped else most):
            trial = next_to_confirm(known, confirmations, runner.objective, runner.budget)
            if trial is None:
                break
            confirmations.append(_confirmation(runner, trial, fresh))
        if stopped or any(one.is_met for one in confirmations):
            break
    return SearchResult(tuple(trials.values()), tuple(confirmations), stopped)


def _search_on(
    runner: TrialRunner,
    limits: Limits,
    space: Space,
    enough: float,
    trials: dict[Recipe, TuningTrial],
) -> Stopped:
    """Put every trial into `trials`, each with a name of its own; says what ended that."""

    def measure(recipe: Recipe) -> TuningTrial:
        return trials.get(recipe) or _with_own_name(runner.trial(recipe), trials.values())

    try:
        for trial in search(space, measure, enough):
            if trial.recipe in trials:
                continue
            trials[trial.recipe] = trial
            line = progress_line(list(trials.values()), runner.objective)
            runner.on_progress(CountedLine(line, len(trials), limits.trials))
            if len(trials) >= limits.trials:
                return "trials"
            if time.monotonic() >= runner.end_s:
                return "time"
    except TimeIsUp:
        return "time"
    return ""


def _with_own_name(trial: TuningTrial, before: Iterable[TuningTrial]) -> TuningTrial:
    same = sum(one.name == trial.name or one.name.startswith(f"{trial.name} (") for one in before)
    return msgspec.structs.replace(trial, name=f"{trial.name} ({same + 1})") if same else trial


def _confirmation(runner: TrialRunner, trial: TuningTrial, fresh: Evaluator) -> Confirmation:
    runner.on_progress(f"confirming {trial.name} on {fresh.samples} fresh samples")
    loss = fresh.loss(runner.file(trial.recipe))
    return Confirmation(trial=trial.name, loss=loss, is_met=loss.drop <= runner.budget)
