"""What a metric says: a percentage where it counts right answers, else a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from edgeconv.types import Accuracy

Interval = tuple[float, float]
_DIGITS = 4
_SHARES = ("top1", "top5", "masked_accuracy")


def is_share(accuracy: Accuracy | None) -> bool:
    """Whether the metric counts right answers, so that it is a share of the samples."""
    return accuracy is not None and (bool(accuracy.correct) or accuracy.metric in _SHARES)


def is_named_as_share(metric: str) -> bool:
    """The same of a metric that is known by its name alone; "" is a count of right answers."""
    return not metric or metric in _SHARES


def value_of(metric: str, value: float | None) -> str:
    """The value of a metric that is known by its name alone; see `metric_value`."""
    if value is None:
        return units.ABSENT
    return units.percent(value) if is_named_as_share(metric) else units.significant(value, _DIGITS)


def drop_of(metric: str, drop: float | None) -> str:
    """How much worse, for a metric that is known by its name alone; see `drop_value`."""
    if drop is None:
        return units.ABSENT
    return units.points(drop) if is_named_as_share(metric) else units.significant(drop)


def metric_value(accuracy: Accuracy | None) -> str:
    """The value: "97.78 %", or "0.9741" where the metric counts nothing."""
    if accuracy is None:
        return units.ABSENT
    if is_share(accuracy):
        return units.percent(accuracy.value)
    return units.significant(accuracy.value, _DIGITS)


def metric_heading(accuracy: Accuracy) -> str:
    """Its name, with an arrow where less is better."""
    return f"{units.plain(accuracy.metric)}{'' if accuracy.higher_is_better else ' ↓'}"


def drop_value(drop: float | None, accuracy: Accuracy | None) -> str:
    """How much worse: in percentage points for a share, else in the metric's own unit."""
    if drop is None:
        return units.ABSENT
    return units.points(drop) if is_share(accuracy) else units.significant(drop)


def interval_value(interval: Interval | None, accuracy: Accuracy | None) -> str:
    """An interval of drops in brackets, without a unit."""
    if interval is None:
        return units.ABSENT
    if is_share(accuracy):
        return in_points(interval)
    return f"[{', '.join(units.significant(end) for end in interval)}]"


def in_points(interval: Interval) -> str:
    """An interval of a difference of fractions, in percentage points: "[−0.91, 0.30]"."""
    return f"[{', '.join(units.points(end).removesuffix(' pp') for end in interval)}]"


def duration_interval(interval: Interval | None) -> str:
    """An interval of times in brackets; the unit once where both ends have the same."""
    if interval is None:
        return units.ABSENT
    low, high = (units.duration(end) for end in interval)
    unit = high.rpartition(" ")[2]
    return f"[{low.removesuffix(f' {unit}')}, {high}]"


def factor_interval(ratio: Interval | None) -> str:
    """The interval of a speed-up in brackets, from that of the ratio of the times."""
    if ratio is None:
        return units.ABSENT
    ends = (units.significant(1 / end) if end else "∞" for end in reversed(ratio))
    return f"[{', '.join(ends)}]"
