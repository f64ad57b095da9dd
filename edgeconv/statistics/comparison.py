"""Which of two is better beyond noise."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from edgeconv.statistics.estimate import LEVEL, normal_quantile
from edgeconv.statistics.paired import drop_of
from edgeconv.statistics.rounds import ratio_bounds, unpaired_ratio_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.types import Accuracy, Latency, TuningTrial

_T = TypeVar("_T")


def latency_ratio_interval(a: Latency, b: Latency) -> tuple[float, float] | None:
    """The 95 % interval of a's median time over b's, timed in the same rounds.

    None for a single round, for different numbers of rounds, and without times.
    """
    every = (*a.rounds_us, *b.rounds_us)
    if not all(times and 0 < median(times) < math.inf for times in every):
        return None
    low, high = ratio_bounds(a.rounds_us, b.rounds_us, LEVEL / 2, LEVEL / 2)
    return (low, high) if math.isfinite(high) else None


def is_faster(a: Latency, b: Latency) -> bool:
    """Whether a's median time is below b's beyond noise.

    By the ratio in the rounds; where it has no interval, by the intervals of both medians.
    """
    interval = latency_ratio_interval(a, b)
    if interval is not None:
        return interval[1] < 1
    return _is_shorter(a.p50_us, a.p50_interval_us, b.p50_us, b.p50_interval_us)


def is_faster_trial(a: TuningTrial, b: TuningTrial) -> bool:
    """The same for two trials that were timed apart; without intervals by the medians."""
    if a.latency_us is None or b.latency_us is None:
        return a.latency_us is not None
    return _is_shorter(a.latency_us, a.latency_interval_us, b.latency_us, b.latency_interval_us)


def _is_shorter(
    a: float,
    interval: tuple[float, float] | None,
    b: float,
    other: tuple[float, float] | None,
) -> bool:
    if interval is None or other is None or min(a, b, *interval, *other) <= 0:
        return a < b
    return unpaired_ratio_bounds(a, interval, b, other)[1] < 1


def loses_less(a: TuningTrial, b: TuningTrial) -> bool:
    """Whether trial a's drop is smaller than b's beyond chance.

    As if both drops were independent, though they share the float32 model's answers: that errs
    towards equal.
    """
    if a.loss is None or b.loss is None:
        return a.loss is not None
    error = math.sqrt(a.loss.variance / a.loss.samples + b.loss.variance / b.loss.samples)
    return b.loss.drop - a.loss.drop > normal_quantile(LEVEL / 2) * error


def is_more_accurate(a: Accuracy, b: Accuracy) -> bool:
    """Whether a is better than b by the same metric on the same samples, beyond chance.

    Without results of each sample, by the values alone.
    """
    alike = len(a.correct) == len(b.correct) and len(a.per_sample) == len(b.per_sample)
    interval = drop_of(a, b)[1] if alike and (a.correct or a.per_sample) else None
    if interval is not None:
        return interval[0] > 0
    return a.value > b.value if a.higher_is_better else a.value < b.value


def pareto_front(
    items: Sequence[_T], is_cheaper: Callable[[_T, _T], bool], is_better: Callable[[_T, _T], bool]
) -> list[bool]:
    """The Pareto front: for each item, whether no other beats it.

    Both functions tell whether the first of two is better beyond noise. An item beats another if
    it is worse in neither way and better in one.
    """

    def beats(a: _T, b: _T) -> bool:
        is_worse = is_cheaper(b, a) or is_better(b, a)
        return not is_worse and (is_cheaper(a, b) or is_better(a, b))

    return [not any(beats(other, item) for other in items) for item in items]
