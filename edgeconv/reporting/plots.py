"""The pictures of a report, as SVG made here: no script, no font, nothing from elsewhere.

They are drawn 460 units wide, so that their text can be read on a phone, and take their
colours from the page's style sheet by class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.axes import Axis, drawable, linear_axis, log_axis
from edgeconv.reporting.labels import Box, Label, place
from edgeconv.reporting.region import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH = 460
_HEIGHT = 320
_AREA = Box(60, 14, WIDTH - 12, _HEIGHT - 44)
_ACROSS = (_AREA.left, _AREA.right)
_MOST_WORTH = 1e12
# Differences of a hundredth of a point would look like much on an axis that shows only them.
_LEAST_SHARES = 0.02
_NO_LIMIT = Region()


@dataclass(frozen=True)
class Point:
    """A model in a plot: what it costs (positive) and its accuracy, or another metric.

    `number` is its row in the table of the models; `is_best` says that no other artifact beats it.
    """

    label: str
    cost: float
    accuracy: float
    is_baseline: bool
    number: int = 0
    is_best: bool = False


@dataclass(frozen=True)
class Worth:
    """The metric that goes upwards in a plot: a share of right answers, or any number."""

    name: str = "Accuracy"
    is_share: bool = True
    higher_is_better: bool = True

    def written(self, value: float) -> str:
        """The value as text."""
        return units.percent(value) if self.is_share else units.significant(value, 4)

    def drawable(self, value: float) -> bool:
        """Whether the value has a place on the axis."""
        return 0 <= value <= 1 if self.is_share else abs(value) < _MOST_WORTH


_ACCURACY = Worth()


def accuracy_plot(
    points: Sequence[Point],
    *,
    key: str,
    heading: str,
    form: Callable[[float, int], str],
    worth: Worth = _ACCURACY,
    region: Region = _NO_LIMIT,
) -> Markup | None:
    """Accuracy against a cost on a logarithmic axis; None where there is nothing to show.

    `key` makes the ids in the picture its own; `form` writes a cost at so many digits. What
    `region` allows is shaded. Better is always upwards.
    """
    shown = [p for p in points if drawable(p.cost) and worth.drawable(p.accuracy)]
    if not shown:
        return None
    across = log_axis(_with_limit([p.cost for p in shown], region.most_cost), *_ACROSS)
    up = _up_axis([p.accuracy for p in shown], worth, region.least_value)
    best = [p for p in shown if p.is_best]
    parts = [
        _allowed(region, across, up),
        _grid(across, up, form, heading, worth),
        _baseline_line(shown, up),
        _front(best, across, up),
        *_marks(shown, best, across, up, form, worth),
        *_labels(shown, across, up),
    ]
    said = "; ".join(f"{p.label}: {form(p.cost, 3)}, {worth.written(p.accuracy)}" for p in shown)
    title = f"{worth.name} against {heading}"
    return picture(Markup().join(parts), _HEIGHT, key, title, said)


def _up_axis(values: Sequence[float], worth: Worth, limit: float | None) -> Axis:
    """Upwards is better. A limit just off the values is taken in, so that it can be seen."""
    spread = max(max(values) - min(values), 1e-3)
    near = limit is not None and min(values) - spread <= limit <= max(values) + spread
    given = [*values, limit] if limit is not None and near else [*values]
    if worth.is_share:
        room = max(_LEAST_SHARES - (max(given) - min(given)), 0.0) / 2
        low, high = max(min(given) - room, 0.0), min(max(given) + room, 1.0)
        given += [low, high]
    least, most = (0.0, 1.0) if worth.is_share else (-math.inf, math.inf)
    ends = (_AREA.bottom, _AREA.top) if worth.higher_is_better else (_AREA.top, _AREA.bottom)
    return linear_axis(given, *ends, least=least, most=most)


def _with_limit(costs: list[float], limit: float | None) -> list[float]:
    """The costs, and a limit among them or not far beyond."""
    is_near = limit is not None and drawable(limit) and min(costs) / 2 < limit < max(costs) * 2
    return [*costs, limit] if is_near and limit is not None else costs


def _allowed(region: Region, across: Axis, up: Axis) -> Markup:
    """The part of the plot that the budget allows, shaded, with a line at each limit."""
    limits = [v for v in (region.most_cost, region.least_value) if v is not None]
    if not limits or any(math.isnan(limit) for limit in limits):
        return Markup()
    right = _AREA.right if region.most_cost is None else across.at(region.most_cost)
    low = _AREA.bottom if region.least_value is None else up.at(region.least_value)
    shade = '<rect class="allowed" x="{:g}" y="{:g}" width="{:g}" height="{:g}"/>'
    parts = [
        Markup(shade).format(
            _AREA.left, _AREA.top, max(right - _AREA.left, 0), max(low - _AREA.top, 0)
        )
    ]
    if region.most_cost is not None and right < _AREA.right:
        parts.append(line(right, _AREA.top, right, low, "limit"))
    if region.least_value is not None and low < _AREA.bottom:
        parts.append(line(_AREA.left, low, right, low, "limit"))
    return Markup().join(parts)


def picture(body: Markup, height: float, key: str, title: str, description: str) -> Markup:
    """A whole SVG element, named and described for those who do not see it."""
    return Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{k}-title {k}-desc">'
        '<title id="{k}-title">{t}</title><desc id="{k}-desc">{d}</desc>{body}</svg>'
    ).format(w=WIDTH, h=height, k=key, t=title, d=description, body=body)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a class of the style sheet."""
    return Markup('<line class="{}" x1="{:g}" y1="{:g}" x2="{:g}" y2="{:g}"/>').format(
        kind, x1, y1, x2, y2
    )


def words(x: float, y: float, text: str, kind: str = "tick", anchor: str = "middle") -> Markup:
    """A line of text with its baseline at `y`."""
    return Markup('<text class="{}" x="{:g}" y="{:g}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, text
    )


def verticals(across: Axis, top: float, bottom: float, form: Callable[[float, int], str]) -> Markup:
    """The grid lines and tick labels of an axis that goes across."""
    parts = []
    for tick in across.ticks:
        digits = 1 if float(f"{tick:.0e}") == float(f"{tick:.6e}") else 2
        parts.append(line(across.at(tick), top, across.at(tick), bottom, "grid"))
        parts.append(words(across.at(tick), bottom + 16, form(tick, digits)))
    return Markup().join(parts)


def _grid(
    across: Axis, up: Axis, form: Callable[[float, int], str], heading: str, worth: Worth
) -> Markup:
    parts = [verticals(across, _AREA.top, _AREA.bottom, form)]
    decimals = _decimals(up.ticks)
    for tick in up.ticks:
        parts.append(line(_AREA.left, up.at(tick), _AREA.right, up.at(tick), "grid"))
        label = f"{tick * 100:.{decimals}f} %" if worth.is_share else f"{tick:g}"
        parts.append(words(_AREA.left - 7, up.at(tick) + 4, label, anchor="end"))
    middle = (_AREA.left + _AREA.right) / 2
    parts.append(words(middle, _HEIGHT - 6, f"{heading} →", "axis"))
    return Markup().join(parts)


def _decimals(ticks: Sequence[float]) -> int:
    step = min((b - a for a, b in pairwise(ticks)), default=0.01) * 100
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _baseline_line(points: Sequence[Point], up: Axis) -> Markup:
    found = (up.at(p.accuracy) for p in points if p.is_baseline)
    return Markup().join(line(_AREA.left, y, _AREA.right, y, "reference") for y in found)


def _front(best: Sequence[Point], across: Axis, up: Axis) -> Markup:
    if len(best) < 2:
        return Markup()
    steps: list[str] = []
    for point in sorted(best, key=lambda p: (p.cost, p.accuracy)):
        x, y = across.at(point.cost), up.at(point.accuracy)
        steps.append(f"H{x:g}V{y:g}" if steps else f"M{x:g} {y:g}")
    return Markup('<path class="front" d="{}"/>').format("".join(steps))


def _marks(
    points: Sequence[Point],
    best: Sequence[Point],
    across: Axis,
    up: Axis,
    form: Callable[[float, int], str],
    worth: Worth,
) -> list[Markup]:
    marks = []
    for p in sorted(points, key=lambda p: p in best):
        x, y = across.at(p.cost), up.at(p.accuracy)
        kind = "baseline" if p.is_baseline else "best" if p in best else "other"
        title = f"{p.label}: {form(p.cost, 3)}, {worth.written(p.accuracy)}"
        shape = Markup('<circle class="{}" data-row="{}" cx="{:g}" cy="{:g}" r="5">{}</circle>')
        if p.is_baseline:
            shape = Markup(
                '<path class="{}" data-row="{}" d="M{:g} {:g}m0-6.5l6.5 6.5l-6.5 6.5l-6.5-6.5z">'
                "{}</path>"
            )
        marks.append(shape.format(kind, p.number, x, y, Markup("<title>{}</title>").format(title)))
    return marks


def _labels(points: Sequence[Point], across: Axis, up: Axis) -> list[Markup]:
    places = [(across.at(p.cost), up.at(p.accuracy)) for p in points]
    labels = place(places, [p.label for p in points], _AREA)
    pairs = zip(places, labels, strict=True)
    return [_label(at, label) for at, label in pairs if label is not None]


def _label(at: tuple[float, float], label: Label) -> Markup:
    x, y = (label.box.left + label.box.right) / 2, (label.box.top + label.box.bottom) / 2
    leader = line(*at, x, y, "leader") if label.far else Markup()
    return leader + words(round(x, 1), round(y + 4, 1), label.text, "label")
