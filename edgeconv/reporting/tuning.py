"""The page of `tune`: every trial, what was confirmed, and how to convert it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import dim, notes
from edgeconv.reporting.npu import chip, estimated
from edgeconv.reporting.tables import Cell, Column, table
from edgeconv.reporting.units import duration_interval
from edgeconv.statistics.comparison import is_faster_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.reporting.layout import Page
    from edgeconv.types import Confirmation, Loss, Tuning, TuningTrial

_STOPPED = {
    "time": "The time was up before the search ended: a longer --time-limit-s goes on from here.",
    "trials": "The search ended with its last trial: more --trials go on from here.",
}


def tuning_page(tuning: Tuning) -> Page:
    """The objective, one row a trial in order of cost, and the recommendation."""
    stopped = _STOPPED.get(tuning.stopped)
    return [
        *(dim(units.plain(line)) for line in _circumstances(tuning)),
        "",
        table(_columns(tuning), _ordered(tuning), _why),
        "",
        *([Text(stopped, style="yellow")] if stopped else []),
        *(_confirmed(tuning, each) for each in tuning.confirmations),
        *_conclusion(tuning),
        *map(units.plain, tuning.advice),
        *notes(tuning.notes),
    ]


def _circumstances(tuning: Tuning) -> Iterator[str]:
    what = "the agreement with float32" if tuning.on_agreement else tuning.metric
    yield f"{tuning.model}: least {tuning.objective} with a drop of {what} ≤ {tuning.max_drop:g}"
    yield (
        f"data {tuning.data.source}: {tuning.search} samples to search, {tuning.fresh} fresh ones "
        f"to confirm; {tuning.calibration.samples} of {tuning.calibration.source} to calibrate"
    )
    cost = units.size(tuning.float_size_bytes)
    if tuning.float_latency_us is not None:
        cost += f", {units.duration(tuning.float_latency_us)} on {tuning.runtime}"
    search, fresh = tuning.float_loss
    yield f"float32: {cost}, {what} {search.value:.4f}, on the fresh samples {fresh.value:.4f}"
    converted = sum(not trial.error for trial in tuning.trials)
    refused = sum(trial.refused for trial in tuning.trials)
    yield from _estimates(tuning)
    counts = f"{converted} of them converted" + (f" and {refused} refused" if refused else "")
    yield f"{len(tuning.trials)} trials, {counts}, in {tuning.seconds:.0f} s"


def _estimates(tuning: Tuning) -> Iterator[str]:
    """Of what the estimated times are."""
    known = [trial.npu for trial in tuning.trials if trial.npu is not None]
    for estimate in known[:1]:
        yield f"times are estimates of {estimate.compiler}, not measurements; {chip(estimate)}"


def _ordered(tuning: Tuning) -> list[TuningTrial]:
    return sorted(tuning.trials, key=lambda trial: (trial.cost(tuning.objective), trial.name))


def _columns(tuning: Tuning) -> tuple[Column[TuningTrial], ...]:
    is_timed = any(_latency(trial) != units.ABSENT for trial in tuning.trials)
    latency = _measured("latency", lambda trial, _: _latency(trial), beneath=True)
    return (
        Column("recipe", lambda trial: units.plain(trial.name), is_text=True, wraps=True),
        _measured("size", lambda trial, _: units.size(trial.size_bytes)),
        *([latency] * is_timed),
        _measured("drop", lambda _, loss: f"{loss.drop:+.4f}"),
        _measured("95 % interval", lambda _, loss: _interval(loss), beneath=True),
        _measured(
            "fixed/broken",
            lambda _, loss: "–" if loss.broken is None else f"{loss.fixed}/{loss.broken}",
            beneath=True,
        ),
        _measured("chance", lambda trial, _: f"{trial.chance:.0%}"),
        Column("", lambda trial: _mark(tuning, trial), is_text=True),
    )


def _measured(
    heading: str, text: Callable[[TuningTrial, Loss], str], *, beneath: bool = False
) -> Column[TuningTrial]:
    """A column that a trial without a result has not."""

    def cell(trial: TuningTrial) -> str:
        loss = _loss(trial)
        return units.ABSENT if loss is None else text(trial, loss)

    return Column(heading, cell, beneath=beneath)


def _loss(trial: TuningTrial) -> Loss | None:
    """What a trial lost, None where it failed; one that was refused has its numbers."""
    return None if trial.error and not trial.refused else trial.loss


def _why(trial: TuningTrial) -> Iterator[Text]:
    if trial.error:
        yield dim(units.first_line(trial.error))


def _latency(trial: TuningTrial) -> str:
    if trial.npu is not None:
        return estimated(trial.npu)
    return units.with_interval(
        units.duration(trial.latency_us), duration_interval(trial.latency_interval_us)
    )


def _mark(tuning: Tuning, trial: TuningTrial) -> Cell | str:
    if _loss(trial) is None:
        return Cell("failed", style="red")
    if trial.refused:
        return Cell("refused", style="red")
    if trial.name == tuning.recommended:
        return Cell("recommended", style="bold green")
    if any(each.trial == trial.name for each in tuning.confirmations):
        return Cell("not confirmed", style="yellow")
    return "Pareto" if trial.name in tuning.pareto else ""


def _confirmed(tuning: Tuning, confirmation: Confirmation) -> str:
    loss, within = confirmation.loss, "within" if confirmation.is_met else "over"
    flips = "" if loss.broken is None else f", {loss.fixed} fixed and {loss.broken} broken"
    return (
        f"{confirmation.trial} on {loss.samples} fresh samples: drop {loss.drop:+.4f} "
        f"({_interval(loss)}){flips}: {within} the budget of {tuning.max_drop:g}"
    )


def _conclusion(tuning: Tuning) -> Iterator[str | Text]:
    tried = len(tuning.confirmations)
    if tuning.ok:
        best = tuning.trial(tuning.recommended)
        share = units.percent(best.size_bytes / tuning.float_size_bytes, 1)
        yield Text(
            f"Recommended is {best.name}: {units.size(best.size_bytes)}, {share} of float32; "
            f"confirmation {tried} of at most 3.",
            style="bold green",
        )
        if alike := _as_fast(tuning, best):
            yield f"  equally fast within noise, but larger: {', '.join(alike)}"
        yield f"  {tuning.directory}/{tuning.artifact}"
        recipe = f"--config {tuning.directory}/{tuning.recipe_file}"
        words = ("edgeconv convert", tuning.model, recipe, *tuning.allow, "-o OUT")
        yield f"  again: {' '.join(words)}"
        return
    yield Text(f"No trial is within the budget of {tuning.max_drop:g}.", style="bold red")
    if tuning.closest:
        yield f"The closest is {tuning.closest}{_lacks(tuning)}"


def _as_fast(tuning: Tuning, best: TuningTrial) -> list[str]:
    """The larger trials that are not slower than the recommended one beyond noise."""
    if tuning.objective != "latency":
        return []
    return [
        units.plain(trial.name)
        for trial in _ordered(tuning)
        if trial is not best
        and trial.latency_us is not None
        and trial.size_bytes > best.size_bytes
        and not is_faster_trial(best, trial)
    ]


def _lacks(tuning: Tuning) -> str:
    confirmed = {each.trial: each.loss for each in tuning.confirmations}
    loss = confirmed.get(tuning.closest) or tuning.trial(tuning.closest).loss
    if loss is None:
        return "."
    samples = "fresh" if tuning.closest in confirmed else "search"
    over = loss.drop - tuning.max_drop
    if over <= 0:
        return f": its drop of {loss.drop:+.4f} on {loss.samples} samples may be chance."
    return (
        f": it loses {loss.drop:+.4f} on the {loss.samples} {samples} samples, {over:.4f} more "
        "than the budget."
    )


def _interval(loss: Loss) -> str:
    if loss.interval is None:
        return "–"
    return f"{loss.interval[0]:+.4f} to {loss.interval[1]:+.4f}"
