"""Pictures of a training: every metric, epoch by epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.axes import Axis, linear_axis, whole_axis
from edgeconv.reporting.labels import Box
from edgeconv.reporting.plots import WIDTH, line, picture, words
from edgeconv.reporting.training import metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgeconv.types import TrainingRecord

_HEIGHT = 230
_AREA = Box(60, 34, WIDTH - 12, _HEIGHT - 44)
_MOST_DOTS = 30
_MOST_DRAWN = 1e12
_Series = dict[int, float]


def metric_pictures(record: TrainingRecord, key: str) -> list[tuple[str, Markup]]:
    """Every metric by name, with its picture; those without a number to draw are left out.

    A solid line for the training samples, a dashed one for the validation, and a large point
    at the epoch that was kept.
    """
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    found = []
    for number, name in enumerate(names):
        trained = _series([epoch.metrics for epoch in record.epochs], name)
        validated = _series([epoch.validation for epoch in record.epochs], name)
        if trained or validated:
            drawn = _picture(name, trained, validated, record, f"{key}-{number}")
            found.append((units.plain(name), drawn))
    return found


def _series(epochs: Sequence[Mapping[str, float]], name: str) -> _Series:
    """The values that can be drawn, by epoch from 1 on."""
    values = {n: metrics[name] for n, metrics in enumerate(epochs, start=1) if name in metrics}
    return {n: v for n, v in values.items() if math.isfinite(v) and abs(v) < _MOST_DRAWN}


def _picture(
    name: str, trained: _Series, validated: _Series, record: TrainingRecord, key: str
) -> Markup:
    values = [*trained.values(), *validated.values()]
    least = 0.0 if min(values) >= 0 else -math.inf
    most = 1.0 if max(values) <= 1 and least == 0 else math.inf
    up = linear_axis(values, _AREA.bottom, _AREA.top, least=least, most=most)
    across = whole_axis(len(record.epochs), _AREA.left + 12, _AREA.right - 12)
    parts = [_grid(across, up), _legend(bool(trained), bool(validated))]
    for series, kind in ((trained, "training"), (validated, "validation")):
        parts.append(_curve(series, kind, across, up, record.best_epoch))
    last = max({**trained, **validated})
    said = ", ".join(
        f"{kind} {metric(series[last])}"
        for series, kind in ((trained, "training"), (validated, "validation"))
        if last in series
    )
    title = f"{units.plain(name)}, epoch by epoch"
    return picture(Markup().join(parts), _HEIGHT, key, title, f"At epoch {last}: {said}.")


def _grid(across: Axis, up: Axis) -> Markup:
    parts = [words(across.at(tick), _AREA.bottom + 16, f"{tick:g}") for tick in across.ticks]
    for tick in up.ticks:
        parts.append(line(_AREA.left, up.at(tick), _AREA.right, up.at(tick), "grid"))
        parts.append(words(_AREA.left - 7, up.at(tick) + 4, f"{tick:g}", anchor="end"))
    middle = (_AREA.left + _AREA.right) / 2
    parts.append(words(middle, _HEIGHT - 6, "epoch →", "axis"))
    return Markup().join(parts)


def _legend(has_training: bool, has_validation: bool) -> Markup:
    parts, x = [], _AREA.left
    for kind, is_there in (("training", has_training), ("validation", has_validation)):
        if is_there:
            parts.append(line(x, 13, x + 24, 13, f"curve {kind}"))
            parts.append(words(x + 30, 17, kind, anchor="start"))
            x += 110
    return Markup().join(parts)


def _curve(series: _Series, kind: str, across: Axis, up: Axis, kept: int) -> Markup:
    """The line, broken where a value is missing, and its points where they are not too many."""
    steps, marks = [], []
    for number, value in series.items():
        x, y = across.at(number), up.at(value)
        steps.append(f"{'L' if number - 1 in series else 'M'}{x:g} {y:g}")
        if number == kept or len(series) <= _MOST_DOTS:
            title = f"epoch {number}: {kind} {metric(value)}"
            circle = '<circle class="knot {}" cx="{:g}" cy="{:g}" r="{}"><title>{}</title></circle>'
            marks.append(Markup(circle).format(kind, x, y, 5 if number == kept else 2.8, title))
    path = Markup('<path class="curve {}" d="{}"/>').format(kind, "".join(steps))
    return path + Markup().join(marks) if steps else Markup()
