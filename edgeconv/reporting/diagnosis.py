"""The page of `doctor`: every preprocessing that was tried, and the conclusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Grid, GridColumn, Page, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Diagnosis, Trial

_TRIALS = (
    GridColumn("values", right=False),
    GridColumn("accuracy"),
    GridColumn("95 % interval", beneath=True),
    GridColumn("fits", right=False),
    GridColumn("--preprocess", right=False, wraps=True),
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
        *(Text(units.plain(line), style="dim") for line in _circumstances(diagnosis)),
        Text(),
        Grid(_TRIALS, [_row(trial) for trial in diagnosis.trials]),
        Text(),
        *_conclusion(diagnosis),
        *(Text(f"note: {units.plain(note)}", style="dim") for note in diagnosis.notes),
    ]


def _circumstances(diagnosis: Diagnosis) -> Iterator[str]:
    low, high = diagnosis.stored_limits
    yield f"{diagnosis.model} on {diagnosis.runtime}"
    yield (
        f"data {diagnosis.data.source}: {diagnosis.data.samples} samples, {diagnosis.stored_dtype} "
        f"from {low:.5g} to {high:.5g}"
    )
    yield (
        f"the output has {diagnosis.classes} {diagnosis.scores}; always guessing the most frequent "
        f"label is right in {_percent(diagnosis.guessing)}"
    )


def _row(trial: Trial) -> Row:
    name = Text(trial.name)
    if trial.is_current:
        name.append(" (now)", style="dim")
    numbers = (Text(_percent(trial.accuracy.value)), Text(_interval(trial)))
    fits = Text("yes", style="green") if trial.fits else Text()
    return Row((name, *numbers, fits, Text(units.plain(trial.preprocess))))


def _conclusion(diagnosis: Diagnosis) -> Iterator[Text]:
    fits, tried = diagnosis.fits, len(diagnosis.trials)
    samples = diagnosis.data.samples
    if not fits:
        yield Text(
            f"None of {tried} preprocessings is clearly better than always guessing the most "
            f"frequent label, on {samples} samples. If more samples do not help, check:",
            style="bold red",
        )
        yield from (Text(f"  - {each}") for each in _ELSEWHERE)
        return
    if len(fits) == 1:
        yield Text(f"One of {tried} fits, {_accuracy(fits[0])}:", style="bold green")
    else:
        yield Text(
            f"{len(fits)} of {tried} preprocessings cannot be told apart on {samples} samples; "
            f"give more{_how_many_more(diagnosis)}. The likeliest is {_accuracy(fits[0])}:",
            style="bold yellow",
        )
    yield Text(f"  --preprocess '{units.plain(fits[0].preprocess)}'")
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


def _current(diagnosis: Diagnosis) -> Iterator[Text]:
    now = next(trial for trial in diagnosis.trials if trial.is_current)
    if not now.fits:
        yield Text(f"In use now: {_accuracy(now)}.")
    elif len(diagnosis.fits) == 1:
        yield Text("It is in use already: there is nothing to change.")
    else:
        yield Text("The one in use now is among them.")


def _accuracy(trial: Trial) -> str:
    return f"“{trial.name}”: {_percent(trial.accuracy.value)} right ({_interval(trial)})"


def _percent(fraction: float) -> str:
    return units.percent(fraction, 1)


def _interval(trial: Trial) -> str:
    return " to ".join(_percent(end).removesuffix(" %") for end in trial.interval) + " %"
