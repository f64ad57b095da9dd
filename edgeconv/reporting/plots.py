"""Plots of accuracy, or another metric, against size or latency, with what the budget allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Fields, Plot, drawable
from edgeconv.reporting.labels import place_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.types import Report

# As in charts/accuracy.json.
_WIDTH, _HEIGHT = 330, 220
_MOST_WORTH = 1e12
# An axis that shows only differences of a hundredth of a point would exaggerate them.
_LEAST_SHARES = 0.02
_LEAST_RATIO = 2.0


@dataclass(frozen=True, kw_only=True)
class BudgetRegion:
    """The most that a model may cost and the least that it must be worth; None has no limit."""

    most_cost: float | None = None
    least_value: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the budget limits either axis."""
        return self.most_cost is not None or self.least_value is not None


_NO_LIMIT = BudgetRegion()


@dataclass(frozen=True)
class Point:
    """A model in a plot: its cost (positive) and its accuracy, or another metric.

    `number` is its row in the table of the models; `is_best`: no other artifact beats it.
    """

    label: str
    cost: float
    accuracy: float
    is_baseline: bool
    number: int = 0
    is_best: bool = False


@dataclass(frozen=True)
class Worth:
    """The metric on the vertical axis: a share of right answers, or any number."""

    name: str = "Accuracy"
    is_share: bool = True
    higher_is_better: bool = True

    def written(self, value: float) -> str:
        """The value as text."""
        return units.percent(value) if self.is_share else units.significant(value, 4)

    def drawable(self, value: float) -> bool:
        """Whether the value has a place on the axis."""
        return 0 <= value <= 1 if self.is_share else abs(value) < _MOST_WORTH


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    bent: Callable[[float], float] = float

    def share(self, value: float) -> float:
        """The position of the value along the axis, from 0 to 1."""
        low, high, at = self.bent(self.low), self.bent(self.high), self.bent(value)
        return (at - low) / (high - low)

    def bounded(self, value: float | None, otherwise: float) -> float:
        """The value, limited to the axis; `otherwise` without a value."""
        return otherwise if value is None else min(max(value, self.low), self.high)


_ACCURACY = Worth()


def accuracy_plot(
    points: Sequence[Point],
    *,
    cost: str,
    unit: str,
    worth: Worth = _ACCURACY,
    region: BudgetRegion = _NO_LIMIT,
) -> Plot | None:
    """Accuracy against a cost in bytes or microseconds (`unit`); None without any model to show.

    What `region` allows is shaded. Better is always upwards.
    """
    # The last ones are drawn on top.
    shown = sorted(
        (p for p in points if drawable(p.cost) and worth.drawable(p.accuracy)),
        key=lambda p: p.is_best,
    )
    if not shown:
        return None
    across = _cost_axis([p.cost for p in shown], region.most_cost)
    up = _worth_axis([p.accuracy for p in shown], worth, region.least_value)
    form = {"bytes": units.size, "microseconds": units.duration}[unit]
    marks = [_mark(p, f"{p.label}: {form(p.cost)}, {worth.written(p.accuracy)}") for p in shown]
    is_reversed = not worth.higher_is_better
    return Plot(
        chart="accuracy",
        title=f"{worth.name} against {cost}",
        description="; ".join(mark["tip"] for mark in marks),
        data={
            **_corner(region, across, up),
            "baselines": [{"worth": p.accuracy} for p in shown if p.is_baseline],
            "front": [mark for mark, p in zip(marks, shown, strict=True) if p.is_best],
            "labels": _labels(shown, across, up, is_reversed=is_reversed),
            "models": marks,
        },
        axes={
            "x": {
                "title": f"{cost} →",
                "axis": {"style": unit},
                "scale": {"type": "log", "domain": [across.low, across.high]},
            },
            "y": {
                "title": f"↑ {worth.name}{' (less is better)' * is_reversed}",
                "axis": {"style": "share"} if worth.is_share else {},
                "scale": {"domain": [up.low, up.high], "reverse": is_reversed},
            },
        },
        rows=tuple(p.number for p in shown),
    )


def _cost_axis(costs: list[float], limit: float | None) -> _Axis:
    """An axis with room around the costs, and around a limit that is near them."""
    if limit is not None and drawable(limit) and min(costs) / 2 < limit < max(costs) * 2:
        costs = [*costs, limit]
    low, high = min(costs) / 1.15, max(costs) * 1.15
    short = max(1.0, math.sqrt(_LEAST_RATIO / (high / low)))
    return _Axis(low / short, high * short, math.log)


def _worth_axis(values: list[float], worth: Worth, limit: float | None) -> _Axis:
    """An axis with room around the values, and around a limit that is near them."""
    spread = max(max(values) - min(values), 1e-3)
    if limit is not None and min(values) - spread <= limit <= max(values) + spread:
        values = [*values, limit]
    low, high = min(values), max(values)
    room = 0.15 * max(high - low, 1e-3)
    if worth.is_share:
        room = max(room, 0.65 * _LEAST_SHARES - (high - low) / 2)
        return _Axis(max(low - room, 0.0), min(high + room, 1.0))
    return _Axis(low - room, high + room)


def _corner(region: BudgetRegion, across: _Axis, up: _Axis) -> dict[str, list[Fields]]:
    """The area that the budget allows, and a line at each limit within the plot."""
    limits = [v for v in (region.most_cost, region.least_value) if v is not None]
    if not limits or any(math.isnan(limit) for limit in limits):
        return {"allowed": [], "limits": []}
    cost = across.bounded(region.most_cost, across.high)
    worth = up.bounded(region.least_value, up.low)
    corner = {"cost": across.low, "to_cost": cost, "worth": worth, "to_worth": up.high}
    upright = [{**corner, "cost": cost}] if cost < across.high else []
    level = [{**corner, "to_worth": worth}] if worth > up.low else []
    return {"allowed": [corner], "limits": upright + level}


def _mark(point: Point, tip: str) -> Fields:
    kind = "baseline" if point.is_baseline else "best" if point.is_best else "other"
    return {"cost": point.cost, "worth": point.accuracy, "kind": kind, "tip": tip}


def _labels(
    points: Sequence[Point], across: _Axis, up: _Axis, *, is_reversed: bool
) -> list[Fields]:
    """Names next to their points; those that are farther away have a line to it."""
    shares = [(across.share(p.cost), up.share(p.accuracy)) for p in points]
    places = [(x * _WIDTH, (y if is_reversed else 1 - y) * _HEIGHT) for x, y in shares]
    labels = place_labels(places, [p.label for p in points], _WIDTH, _HEIGHT)
    return [
        {**vars(label), "from_x": x, "from_y": y}
        for (x, y), label in zip(places, labels, strict=True)
        if label
    ]


def size_region(report: Report) -> BudgetRegion:
    """What the budget allows of size and accuracy, by the loosest limit of all models."""
    base = report.baseline.size_bytes if report.baseline else None
    return _region(report, "max-size-bytes", "max-size-ratio", base)


def latency_region(report: Report) -> BudgetRegion:
    """What the budget allows of median latency and accuracy."""
    times = (m.latency.p50_us for m in report.measurements if m.recipe == "float32" and m.latency)
    base = next(times, None)
    return _region(report, "max-latency-p50-us", "max-latency-ratio", base)


def _region(report: Report, limit: str, ratio_limit: str, base: float | None) -> BudgetRegion:
    cost, ratio = _loosest(report, limit, max), _loosest(report, ratio_limit, max)
    costs = (cost, ratio * base if ratio is not None and base is not None else None)
    return BudgetRegion(
        most_cost=min((cost for cost in costs if cost is not None), default=None),
        least_value=_accuracy(report),
    )


def _accuracy(report: Report) -> float | None:
    """The lowest allowed accuracy; None for a metric of which less is better."""
    baseline = report.baseline.accuracy if report.baseline else None
    drop = _loosest(report, "max-accuracy-drop", max)
    if baseline and not baseline.higher_is_better:
        return None
    below = baseline.value - drop if drop is not None and baseline else None
    limits = [v for v in (_loosest(report, "min-accuracy", min), below) if v is not None]
    return max(limits, default=None)


def _loosest(report: Report, limit: str, of: Callable[[list[float]], float]) -> float | None:
    """The loosest value of a limit; None where some model does not have that limit."""
    findings = report.verdict.findings if report.verdict else ()
    named = [f for f in findings if f.limit.replace("_", "-") == limit]
    allowed = [f.allowed for f in named if isinstance(f.allowed, float | int)]
    is_general = {f.model for f in named} == {f.model for f in findings}
    return of(allowed) if allowed and is_general else None
