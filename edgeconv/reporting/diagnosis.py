"""The page of `doctor`: every preprocessing that was tried, and the conclusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import dim, notes
from edgeconv.reporting.tables import Cell, Column, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.reporting.layout import Page
    from edgeconv.types import Diagnosis, Trial

_ELSEWHERE = (
    "the labels: do they belong to these samples, and count from 0?",
    "the classes: are they in the order of the training?",
    "the training: did it end well? Measure the model where it was trained",
    "preprocessing that is not tried here: cropping, another resize, another color space",
)


def diagnosis_page(diagnosis: Diagnosis) -> Page:
    """The model and data, one row for each preprocessing, the best first, and the conclusion."""
    return [
        *(dim(units.plain(line)) for line in _circumstances(diagnosis)),
        "",
        table(_TRIALS, diagnosis.trials),
        "",
        *_conclusion(diagnosis),
        *notes(diagnosis.notes),
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


def _conclusion(diagnosis: Diagnosis) -> Iterator[str | Text]:
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
    elif len(diagnosis.fits) == 1:
        yield "It is in use already: there is nothing to change."
    else:
        yield "The one in use now is among them."


def _accuracy(trial: Trial) -> str:
    return f"“{trial.name}”: {_percent(trial.accuracy.value)} right ({_interval(trial)})"


def _percent(fraction: float) -> str:
    return units.percent(fraction, 1)


def _interval(trial: Trial) -> str:
    return " to ".join(_percent(end).removesuffix(" %") for end in trial.interval) + " %"


_TRIALS: tuple[Column[Trial], ...] = (
    Column("values", lambda t: Cell(t.name, aside=" (now)" * t.is_current), is_text=True),
    Column("accuracy", lambda trial: _percent(trial.accuracy.value)),
    Column("95 % interval", _interval, beneath=True),
    Column("fits", lambda trial: Cell("yes", style="green") if trial.fits else "", is_text=True),
    Column("--preprocess", lambda trial: units.plain(trial.preprocess), is_text=True, wraps=True),
)
