"""Pictures of one row a model: latency samples, and how close outputs are to float."""

from __future__ import annotations

import math
from itertools import chain
from statistics import quantiles
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.axes import Axis, drawable, linear_axis, log_axis
from edgeconv.reporting.labels import shortened
from edgeconv.reporting.plots import WIDTH, line, picture, verticals, words
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Latency

DOTS_A_ROW = 150
LEFT = 132
RIGHT = WIDTH - 14
ROW = 36
TOP = 8
_MOST_DB = 200


def latency_picture(rows: Sequence[tuple[str, Latency]], key: str) -> Markup | None:
    """Every model's invoke times: dots a process, the middle half, 5 to 95 %, and the median.

    None where there are no samples that can be drawn.
    """
    kept = [(label, _drawable_rounds(latency)) for label, latency in rows]
    shown = [(label, rounds, list(chain(*rounds))) for label, rounds in kept if any(rounds)]
    if not shown:
        return None
    axis = log_axis([s for _, _, samples in shown for s in samples], LEFT, RIGHT)
    bottom = TOP + ROW * len(shown)
    parts = [verticals(axis, TOP, bottom, units.duration)]
    parts.append(words((LEFT + RIGHT) / 2, bottom + 36, "time of one invoke →", "axis"))
    for i, (label, rounds, samples) in enumerate(shown):
        middle = TOP + ROW * i + ROW / 2
        parts += [row_label(label, middle), _dots(rounds, axis, middle)]
        parts.append(_box(samples, axis, middle))
    said = "; ".join(f"{label}: median {units.duration(_five(s)[2])}" for label, _, s in shown)
    return picture(Markup().join(parts), bottom + 42, key, "Latency distributions", said)


def snr_picture(rows: Sequence[tuple[str, float | None]], key: str) -> Markup | None:
    """The worst output's signal-to-noise ratio of every artifact; None where there is none."""
    if not rows:
        return None
    finite = [v for _, v in rows if v is not None and abs(v) < MAX_SNR_DB]
    least, most = max(min([0, *finite]), -_MOST_DB), min(max([60, *finite]), _MOST_DB)
    axis = linear_axis([least, most], LEFT, RIGHT - 56, least=least, most=most)
    bottom = TOP + ROW * len(rows)
    parts = [verticals(axis, TOP, bottom, lambda tick, _: f"{tick:g}")]
    for i, (label, value) in enumerate(rows):
        middle = TOP + ROW * i + ROW / 2
        parts += [row_label(label, middle), _bar(value, axis, middle)]
    parts.append(words((LEFT + RIGHT) / 2, bottom + 36, "signal to noise, dB →", "axis"))
    said = "; ".join(f"{label}: {units.decibels(value)}" for label, value in rows)
    return picture(Markup().join(parts), bottom + 42, key, "Closeness of the outputs", said)


def _drawable_rounds(latency: Latency) -> list[list[float]]:
    return [[s for s in samples if drawable(s)] for samples in latency.rounds_us]


def row_label(label: str, middle: float) -> Markup:
    """The name of a row, to its left; shortened, with the whole of it for who asks."""
    text = words(LEFT - 8, middle + 4, shortened(label, 16), "label", "end")
    return Markup("<g><title>{}</title>{}</g>").format(label, text)


def _dots(rounds: Sequence[Sequence[float]], axis: Axis, middle: float) -> Markup:
    every = max(1, math.ceil(sum(map(len, rounds)) / DOTS_A_ROW))
    spread = (ROW - 12) / max(len(rounds) - 1, 1)
    steps = []
    for r, samples in enumerate(rounds):
        y = middle - (ROW - 12) / 2 + r * spread if len(rounds) > 1 else middle
        steps += [f"M{axis.at(sample):g} {y:g}h0" for sample in samples[::every]]
    return Markup('<path class="dots" d="{}"/>').format("".join(steps))


def _box(samples: Sequence[float], axis: Axis, middle: float) -> Markup:
    low, first, median, third, high = (axis.at(value) for value in _five(samples))
    box = Markup('<rect class="box" x="{:g}" y="{:g}" width="{:g}" height="14" rx="2"/>').format(
        first, middle - 7, max(third - first, 0.5)
    )
    return (
        line(low, middle, high, middle, "whisker")
        + box
        + line(median, middle - 9, median, middle + 9, "median")
    )


def _five(samples: Sequence[float]) -> tuple[float, float, float, float, float]:
    """The 5, 25, 50, 75 and 95 % quantiles."""
    if len(samples) < 2:
        return (samples[0],) * 5
    cuts = quantiles(samples, n=20, method="inclusive")
    return cuts[0], cuts[4], cuts[9], cuts[14], cuts[18]


def _bar(value: float | None, axis: Axis, middle: float) -> Markup:
    text = units.decibels(value)
    if value is None or math.isnan(value):
        return words(LEFT + 6, middle + 4, text, "label", "start")
    zero, end = axis.at(0), axis.at(value)
    kind = "bar exact" if value >= MAX_SNR_DB else "bar" if value >= 0 else "bar negative"
    bar = Markup('<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="14" rx="2"/>').format(
        kind, min(zero, end), middle - 7, abs(end - zero)
    )
    return bar + words(max(zero, end) + 6, middle + 4, text, "label", "start")
