"""The error of a quantised model along its graph, as a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.axes import Axis, linear_axis, whole_axis
from edgeconv.reporting.labels import Box
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.plots import WIDTH, line, picture, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import LayerError

_HEIGHT = 220
_AREA = Box(60, 14, WIDTH - 12, _HEIGHT - 44)
_MOST_DB = 100.0
_MOST_DOTS = 120


def layer_picture(errors: Sequence[LayerError], key: str, name: str) -> Markup | None:
    """The signal-to-noise ratio of every layer, in the order of the graph; None of nothing.

    Ratios beyond 100 dB, exact ones among them, stand at the top; NaN leaves a gap.
    """
    values = {
        place: min(max(error.snr_db, -_MOST_DB), _MOST_DB)
        for place, error in enumerate(errors, start=1)
        if not math.isnan(error.snr_db)
    }
    if not values:
        return None
    up = linear_axis(
        [0.0, *values.values()], _AREA.bottom, _AREA.top, least=-_MOST_DB, most=_MOST_DB
    )
    across = whole_axis(len(errors), _AREA.left + 12, _AREA.right - 12)
    parts = [_grid(across, up), _trace(values, across, up)]
    if len(values) <= _MOST_DOTS:
        parts += [
            _dot(place, errors[place - 1], value, across, up) for place, value in values.items()
        ]
    worst = min(values, key=lambda place: values[place])
    said = (
        f"The worst of {len(errors)} layers is number {worst}, "
        f"{layer_name(errors[worst - 1].layer)}: {units.decibels(errors[worst - 1].snr_db)}."
    )
    return picture(Markup().join(parts), _HEIGHT, key, f"{name}, layer by layer", said)


def _grid(across: Axis, up: Axis) -> Markup:
    parts = [words(across.at(tick), _AREA.bottom + 16, f"{tick:g}") for tick in across.ticks]
    for tick in up.ticks:
        parts.append(line(_AREA.left, up.at(tick), _AREA.right, up.at(tick), "grid"))
        label = f"{tick:g} dB".replace("-", "−")
        parts.append(words(_AREA.left - 7, up.at(tick) + 4, label, anchor="end"))
    middle = (_AREA.left + _AREA.right) / 2
    parts.append(words(middle, _HEIGHT - 6, "place in the graph →", "axis"))
    return Markup().join(parts)


def _trace(values: dict[int, float], across: Axis, up: Axis) -> Markup:
    steps = [
        f"{'L' if place - 1 in values else 'M'}{across.at(place):g} {up.at(value):g}"
        for place, value in values.items()
    ]
    return Markup('<path class="curve" d="{}"/>').format("".join(steps))


def _dot(place: int, error: LayerError, value: float, across: Axis, up: Axis) -> Markup:
    title = (
        f"{place}: {layer_name(error.layer)} ({units.plain(error.operator)}), "
        f"{units.decibels(error.snr_db)}"
    )
    circle = '<circle class="knot" cx="{:g}" cy="{:g}" r="3.2"><title>{}</title></circle>'
    return Markup(circle).format(across.at(place), up.at(value), title)
