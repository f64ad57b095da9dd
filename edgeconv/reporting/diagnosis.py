"""A diagnosis as text: every preprocessing that was tried, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Grid, GridColumn, Page, Row, to_text

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
    "whether the labels belong to these samples, and count from 0",
    "whether the classes are in the order of the training",
    "whether the training ended well: measure the model where it was trained",
    "preprocessing that is not tried here: cropping, another resize, another space of colours",
)


def diagnosis_lines(diagnosis: Diagnosis, *, width: int | None = None, color: bool = False) -> str:
    """`diagnosis_page` as text."""
    return to_text(diagnosis_page(diagnosis), width=width, color=color)


def diagnosis_page(diagnosis: Diagnosis) -> Page:
    """What was looked at, one row a preprocessing, the best first, and the conclusion."""
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
        f"the output has {diagnosis.classes} {diagnosis.scores}; always guessing the commonest "
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
            f"None of {tried} preprocessings is clearly better than always guessing the commonest "
            f"label, on {samples} samples. If more samples say the same, check:",
            style="bold red",
        )
        yield from (Text(f"  - {each}") for each in _ELSEWHERE)
        return
    if len(fits) == 1:
        yield Text(f"One of {tried} fits, {_said(fits[0])}:", style="bold green")
    else:
        yield Text(
            f"{len(fits)} of {tried} preprocessings cannot be told apart on {samples} samples; "
            f"give more{_how_many_more(diagnosis)}. The likeliest is {_said(fits[0])}:",
            style="bold yellow",
        )
    yield Text(f"  --preprocess '{units.plain(fits[0].preprocess)}'")
    yield from _beside_now(diagnosis)
    if diagnosis.label_offset:
        shift = f"{abs(diagnosis.label_offset)} {'more' if diagnosis.label_offset > 0 else 'less'}"
        yield Text(
            f"The model's class is {shift} than the label, with which the accuracies are: renumber "
            "the labels before you measure.",
            style="yellow",
        )


def _how_many_more(diagnosis: Diagnosis) -> str:
    more = min(diagnosis.available, 4 * diagnosis.data.samples)
    return f" with --samples {more}" if more > diagnosis.data.samples else ""


def _beside_now(diagnosis: Diagnosis) -> Iterator[Text]:
    now = next(trial for trial in diagnosis.trials if trial.is_current)
    if not now.fits:
        yield Text(f"Used now is {_said(now)}.")
    elif len(diagnosis.fits) == 1:
        yield Text("That is what is used now: there is nothing to change.")
    else:
        yield Text("What is used now is one of them.")


def _said(trial: Trial) -> str:
    return f"“{trial.name}”: {_percent(trial.accuracy.value)} right ({_interval(trial)})"


def _percent(fraction: float) -> str:
    return units.percent(fraction, 1)


def _interval(trial: Trial) -> str:
    return " to ".join(_percent(end).removesuffix(" %") for end in trial.interval) + " %"
