"""What a metric says: a percentage where it counts right answers, else a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units

if TYPE_CHECKING:
    from edgeconv.types import Accuracy

    Metric = Accuracy | str | None

Interval = tuple[float, float]
_DIGITS = 4
_SHARES = ("top1", "top5", "masked_accuracy")


def is_share(metric: Metric) -> bool:
    """Whether the metric counts right answers, so that it is a share of the samples.

    A metric is known by its name alone, or by an accuracy; "" is a count of right answers.
    """
    if isinstance(metric, str):
        return not metric or metric in _SHARES
    return metric is not None and (bool(metric.correct) or metric.metric in _SHARES)


def value_of(metric: Metric, value: float | None) -> str:
    """A value of the metric: "97.78 %", or "0.9741" where it counts nothing."""
    if value is None:
        return units.ABSENT
    return units.percent(value) if is_share(metric) else units.significant(value, _DIGITS)


def metric_value(accuracy: Accuracy | None) -> str:
    """The value of an accuracy."""
    return units.ABSENT if accuracy is None else value_of(accuracy, accuracy.value)


def metric_heading(accuracy: Accuracy) -> str:
    """Its name, with an arrow where less is better."""
    return f"{units.plain(accuracy.metric)}{'' if accuracy.higher_is_better else ' ↓'}"


def drop_value(drop: float | None, metric: Metric) -> str:
    """How much worse: in percentage points for a share, else in the metric's own unit."""
    if drop is None:
        return units.ABSENT
    return units.points(drop) if is_share(metric) else units.significant(drop)


def interval_value(interval: Interval | None, metric: Metric) -> str:
    """An interval of drops in brackets, without a unit: "[−0.91, 0.30]"."""
    if interval is None:
        return units.ABSENT
    return f"[{', '.join(drop_value(end, metric).removesuffix(' pp') for end in interval)}]"


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
