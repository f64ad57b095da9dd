"""The pages of verbs that try: doctor, debug and tune."""

import math
import re
from collections.abc import Callable, Iterator

from edgeconv.reporting import units
from edgeconv.reporting.closeness import error_lines
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.pages import Page, dim, notes
from edgeconv.reporting.sections import chip, estimated
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, table
from edgeconv.reporting.units import duration_interval
from edgeconv.statistics.comparison import is_faster_trial
from edgeconv.system.processes.escaping import shell_line
from edgeconv.types import (
    MAX_SNR_DB,
    Confirmation,
    Debugged,
    DebuggedLayer,
    Diagnosis,
    LayerFix,
    Loss,
    PostTraining,
    Trial,
    Tuning,
    TuningTrial,
)

_ELSEWHERE = (
    "the labels: do they belong to these samples, and count from 0?",
    "the classes: are they in the order of the training?",
    "the training: did it end well? Measure the model where it was trained",
    "preprocessing that is not tried here: cropping, another resize, another color space",
)


def diagnosis_page(diagnosis: Diagnosis) -> Page:
    """The model and data, one row for each preprocessing, the best first, and the conclusion."""
    return [
        *(dim(units.plain(line)) for line in _diagnosed(diagnosis)),
        "",
        table(_TRIALS, diagnosis.trials),
        "",
        *_preprocessing_found(diagnosis),
        *notes(diagnosis.notes),
    ]


def _diagnosed(diagnosis: Diagnosis) -> Iterator[str]:
    low, high = diagnosis.stored_limits
    yield f"{diagnosis.model} on {diagnosis.runtime}"
    yield (
        f"{units.data(diagnosis.data.source)}: {diagnosis.data.samples} samples, "
        f"{diagnosis.stored_dtype} from {low:.5g} to {high:.5g}"
    )
    yield (
        f"the output has {diagnosis.classes} {diagnosis.scores}; always guessing the most frequent "
        f"label is right in {_percent(diagnosis.guessing)}"
    )


def _preprocessing_found(diagnosis: Diagnosis) -> Iterator[str | Text]:
    fits, tried = diagnosis.fits, len(diagnosis.trials)
    samples = diagnosis.data.samples
    if not fits:
        yield Text(
            f"None of {tried} preprocessings is clearly better than always guessing the most "
            f"frequent label, on {samples} samples. If more samples do not help, check:",
            style="bold red",
        )
        yield from (f"  - {each}" for each in _ELSEWHERE)
        return
    if len(fits) == 1:
        yield Text(f"One of {tried} fits, {_accuracy(fits[0])}:", style="bold green")
    else:
        yield Text(
            f"{len(fits)} of {tried} preprocessings cannot be told apart on {samples} samples; "
            f"give more{_how_many_more(diagnosis)}. The likeliest is {_accuracy(fits[0])}:",
            style="bold yellow",
        )
    yield f"  --preprocess '{units.plain(fits[0].preprocess)}'"
    yield from _current(diagnosis)
    if diagnosis.label_offset:
        shift = f"{abs(diagnosis.label_offset)} {'more' if diagnosis.label_offset > 0 else 'less'}"
        yield Text(
            f"The accuracies count a class that is {shift} than the label as right: renumber the "
            "labels before you measure.",
            style="yellow",
        )


def _how_many_more(diagnosis: Diagnosis) -> str:
    more = min(diagnosis.available, 4 * diagnosis.data.samples)
    return f" with --samples {more}" if more > diagnosis.data.samples else ""


def _current(diagnosis: Diagnosis) -> Iterator[str]:
    now = next(trial for trial in diagnosis.trials if trial.is_current)
    if not now.fits:
        yield f"In use now: {_accuracy(now)}."
    elif len(diagnosis.fits) > 1:
        yield "The one in use now is among them."
    elif re.fullmatch(r"dtype=\w+", now.preprocess) and "float" not in diagnosis.stored_dtype:
        # Integers are opened here without that step, and by no other command; floats by all.
        yield f"Only the type is to change: without this, {diagnosis.stored_dtype} is refused."
    else:
        yield "It is in use already: there is nothing to change."


def _accuracy(trial: Trial) -> str:
    return f"“{trial.name}”: {_percent(trial.accuracy.value)} right ({_accuracy_interval(trial)})"


def _percent(fraction: float) -> str:
    return units.percent(fraction, 1)


def _accuracy_interval(trial: Trial) -> str:
    return " to ".join(_percent(end).removesuffix(" %") for end in trial.interval) + " %"


_TRIALS: tuple[Column[Trial], ...] = (
    Column("values", lambda t: Cell(t.name, aside=" (now)" * t.is_current), is_text=True),
    Column("accuracy", lambda trial: _percent(trial.accuracy.value)),
    Column("95 % interval", _accuracy_interval, beneath=True),
    Column("fits", lambda trial: Cell("yes", style="green") if trial.fits else "", is_text=True),
    Column("--preprocess", lambda trial: units.plain(trial.preprocess), is_text=True, wraps=True),
)


TOP_LAYERS = 20
# What another recipe costs that its size does not show, as a comment in a shell.
_RECIPE_COSTS: dict[str, str] = {"int16x8": "  # 16-bit activations, slower on most devices"}
_EXPLAINED = (
    "alone: the outputs when only this layer is quantized; share: its part of the error of all "
    "layers; inside: the layer's output in the whole file. Both are compared with the float32 "
    "model, as a signal-to-noise ratio: every 6 dB halve the error."
)


def debugged_page(debugged: Debugged, *, top: int = TOP_LAYERS) -> Page:
    """The model, its `top` costliest layers, and what to do next."""
    costly = [layer for layer in debugged.layers if layer.alone_snr_db is not None]
    noise = sum(_noise(layer) for layer in costly)
    return [
        *(dim(units.plain(line)) for line in _debugged(debugged)),
        *(("", table(_layer_columns(noise), costly[:top])) if costly[:top] else ()),
        *map(dim, _left_out(debugged, len(costly), top)),
        "",
        *_next_steps(debugged),
        *notes(debugged.notes),
    ]


def _debugged(debugged: Debugged) -> Iterator[str]:
    size = units.size(debugged.size_bytes)
    yield (
        f"{debugged.model} to {debugged.recipe.name}: {size}, as float32 "
        f"{units.size(debugged.float_size_bytes)}, on {debugged.runtime}"
    )
    record = debugged.post_training
    if record is not None:
        methods = ", ".join(record.methods) or "none"
        ranges = f"; ranges: {record.calibration_range}" if debugged.recipe.has_ranges else ""
        yield f"post-training methods: {methods}{ranges}"
    calibration = debugged.calibration
    yield (
        f"calibrated on {units.counted(calibration.samples, 'sample')} of {calibration.source}, "
        f"measured on {debugged.samples} of them"
    )
    if debugged.outputs:
        yield "outputs compared with the float32 model:"
        yield from (f"  {line}" for line in error_lines(debugged.outputs, debugged.samples))
    else:
        yield f"outputs compared with the float32 model: {units.decibels(debugged.snr_db)}"


def _layer_columns(noise: float) -> tuple[Column[DebuggedLayer], ...]:
    return (
        Column("layer", lambda layer: layer_name(layer.layer), is_text=True, wraps=True),
        Column(
            "operator",
            lambda layer: Cell(units.plain(layer.operator), style="dim"),
            is_text=True,
            beneath=True,
        ),
        Column("weights", lambda each: f"{each.weights:,}" if each.weights else units.ABSENT),
        Column("bytes", lambda e: units.size(e.weight_bytes) if e.weights else "", beneath=True),
        Column("precision", lambda layer: layer.precision, is_text=True),
        Column("alone", lambda layer: units.decibels(layer.alone_snr_db)),
        Column(
            "share",
            lambda layer: units.percent(_noise(layer) / noise if noise else 0.0, 0),
            beneath=True,
        ),
        Column("inside", lambda layer: units.decibels(layer.inside_snr_db)),
    )


def _noise(layer: DebuggedLayer) -> float:
    """The power of the error at the outputs, over the signal's."""
    if layer.alone_snr_db is None or layer.alone_snr_db >= MAX_SNR_DB:
        return 0.0
    return math.pow(10, -layer.alone_snr_db / 10)


def _left_out(debugged: Debugged, costly: int, top: int) -> Iterator[str]:
    if costly > top:
        yield f"… {units.counted(costly - top, 'layer')} more, which cost less: --top {costly}"
    floats = len(debugged.layers) - costly
    if floats:
        yield f"… {units.counted(floats, 'layer')} in float, or not measurable alone"
    if costly:
        yield _EXPLAINED


def _next_steps(debugged: Debugged) -> Iterator[str | Text]:
    helpful = debugged.helpful
    tried = units.counted(len(debugged.fixes), "change")
    if helpful:
        others = " and other recipes last" if any(fix.recipe for fix in helpful) else ""
        yield Text(
            f"Of {tried} tried, these help, the best first{others}. "
            "Give `convert` the options of one of them:",
            style="bold green",
        )
        for fix in helpful:
            yield from _fix_lines(fix, debugged)
    elif debugged.fixes:
        yield Text(
            f"Nothing that was tried clearly improves the outputs ({tried}).", style="bold yellow"
        )
    if debugged.recipe.name == "int8":
        yield "  not tried: --to qat, which trains the model on"


def _fix_lines(fix: LayerFix, debugged: Debugged) -> Iterator[str | Text]:
    more_bytes = fix.size_bytes - debugged.size_bytes
    sign = "−" if more_bytes < 0 else "+"
    gain = f" (+{units.decibels(fix.snr_db - debugged.snr_db)})"
    gain = gain if fix.snr_db < MAX_SNR_DB else ""
    rest = f"{gain}, {sign}{units.size(abs(more_bytes))}:"
    yield Text().join((Text(f"  {units.decibels(fix.snr_db)}", "bold"), rest))
    yield from (f"    {option}" for option in _options(fix))


def _chosen(record: PostTraining) -> str:
    ranges = record.calibration_range
    return ", ".join((*([] if ranges == "minmax" else [f"ranges: {ranges}"]), *record.methods))


def _options(fix: LayerFix) -> Iterator[str]:
    if fix.recipe is not None:
        yield f"--to {fix.recipe} --methods none" + _RECIPE_COSTS.get(fix.recipe, "")
    if fix.methods:
        chosen = _chosen(fix.post_training) if fix.post_training else ""
        yield f"--methods {','.join(fix.methods)}" + (f"  # {chosen}" if chosen else "")
    for rule in fix.rules:
        yield f"--layer {shell_line([f'{rule.pattern}={rule.precision}'])}"


_STOPPED = {
    "time": "The time was up before the search ended: a longer --time-limit-s goes on from here.",
    "trials": "The search ended with its last trial: more --trials go on from here.",
}


def tuning_page(tuning: Tuning) -> Page:
    """The objective, one row a trial in order of cost, and the recommendation."""
    stopped = _STOPPED.get(tuning.stopped)
    return [
        *(dim(units.plain(line)) for line in _tuned(tuning)),
        "",
        table(_trial_columns(tuning), _ordered(tuning), _why),
        *map(dim, _explained(tuning)),
        "",
        *([Text(stopped, style="yellow")] if stopped else []),
        *(_confirmed(tuning, each) for each in tuning.confirmations),
        *_recommendation(tuning),
        *map(units.plain, tuning.advice),
        *notes(tuning.notes),
    ]


def _tuned(tuning: Tuning) -> Iterator[str]:
    what = "the agreement with float32" if tuning.on_agreement else tuning.metric
    yield f"{tuning.model}: least {tuning.objective} with a drop of {what} ≤ {tuning.max_drop:g}"
    yield (
        f"{units.data(tuning.data.source)}: {tuning.search} samples to search, "
        f"{tuning.fresh} fresh ones to confirm; {tuning.calibration.samples} of "
        f"{tuning.calibration.source} to calibrate"
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
    """The compiler and the chip of the estimated times."""
    known = [trial.npu for trial in tuning.trials if trial.npu is not None]
    for estimate in known[:1]:
        yield f"times are estimates of {estimate.compiler}, not measurements; {chip(estimate)}"


def _explained(tuning: Tuning) -> Iterator[str]:
    """What the headings and marks mean."""
    if any(trial.loss and trial.loss.broken is not None for trial in tuning.trials):
        yield "fixed/broken: samples that became right, and wrong"
    yield "chance: that the drop on other samples is within the budget"
    if any(_mark(tuning, trial) == "Pareto" for trial in tuning.trials):
        yield f"Pareto: no other trial has both a lower {tuning.objective} and a lower drop"


def _ordered(tuning: Tuning) -> list[TuningTrial]:
    return sorted(tuning.trials, key=lambda trial: (trial.cost(tuning.objective), trial.name))


def _trial_columns(tuning: Tuning) -> tuple[Column[TuningTrial], ...]:
    is_timed = any(_latency(trial) != units.ABSENT for trial in tuning.trials)
    latency = _measured("latency", lambda trial, _: _latency(trial), beneath=True)
    return (
        Column("recipe", lambda trial: units.plain(trial.name), is_text=True, wraps=True),
        _measured("size", lambda trial, _: units.size(trial.size_bytes)),
        *([latency] * is_timed),
        _measured("drop", lambda _, loss: f"{loss.drop:+.4f}"),
        _measured("95 % interval", lambda _, loss: _drop_interval(loss), beneath=True),
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
        yield dim(units.plain_line(trial.error))


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
        f"({_drop_interval(loss)}){flips}: {within} the budget of {tuning.max_drop:g}"
    )


def _recommendation(tuning: Tuning) -> Iterator[str | Text]:
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


def _drop_interval(loss: Loss) -> str:
    if loss.interval is None:
        return "–"
    return f"{loss.interval[0]:+.4f} to {loss.interval[1]:+.4f}"
