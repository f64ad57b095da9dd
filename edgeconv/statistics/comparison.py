"""Which of two is better beyond noise, and intervals of times that were measured in rounds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median, stdev
from typing import TYPE_CHECKING, TypeVar

from edgeconv.statistics.estimate import LEVEL, normal_quantile
from edgeconv.statistics.paired import drop_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.types import Accuracy, Latency, TuningTrial


_T = TypeVar("_T")
# A single round is split into this number of blocks of consecutive samples.
_BLOCKS = 10
_LEAST_ROUNDS = 2


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


def median_interval(rounds: Sequence[Sequence[float]], level: float = LEVEL) -> tuple[float, float]:
    """The confidence interval (low, high) of the median time, in the unit of the samples.

    It misses the true median with probability `level`, half of it on each side. Samples of one
    process are not independent, so the rounds are the observations: Student's interval of the
    logarithms of their medians, around the median of all samples (T. Kalibera and R. Jones,
    "Rigorous benchmarking in reasonable time", ISMM 2013, section 6).

    For a single round, its blocks take the place of rounds (batch means; A. Law, "Simulation
    Modeling and Analysis", 5th edition, section 9.5.3), and the interval is within this process.
    For a single sample both limits are that sample. Times are above 0.
    """
    from scipy.special import stdtrit

    middle = _median(rounds)
    observed = list(rounds) if len(rounds) > 1 else _blocks(rounds[0])
    logarithms = [math.log(median(samples)) for samples in observed]
    count = len(logarithms)
    if count == 1:
        return middle, middle
    half = stdtrit(count - 1, 1 - level / 2) * stdev(logarithms) / math.sqrt(count)
    factor = math.exp(half)
    return middle / factor, middle * factor


def ratio_bounds(
    rounds: Sequence[Sequence[float]],
    other: Sequence[Sequence[float]],
    low_level: float,
    high_level: float,
) -> tuple[float, float]:
    """The bounds of the median time over that of another model, timed in the same rounds.

    Student's bounds of the logarithms of the ratio in each round, which cancel a slow phase of the
    machine (Kalibera and Jones, section 7), around the ratio of the medians of all samples.
    Infinite for fewer than two rounds, and for different numbers of them.
    """
    from scipy.special import stdtrit

    count = len(rounds)
    if count < _LEAST_ROUNDS or count != len(other):
        return 0.0, math.inf
    middle = math.log(_median(rounds) / _median(other))
    ratios = [math.log(median(a) / median(b)) for a, b in zip(rounds, other, strict=True)]
    error = stdev(ratios) / math.sqrt(count)
    low, high = (float(stdtrit(count - 1, level)) * error for level in (low_level, high_level))
    return math.exp(middle + low), math.exp(middle - high)


def unpaired_ratio_bounds(
    middle: float, interval: tuple[float, float], other: float, other_interval: tuple[float, float]
) -> tuple[float, float]:
    """The bounds of a median time over that of a model that was not timed in the same rounds.

    Each median has an interval of `median_interval`. The squares of the logarithms of independent
    factors add up. Times are above 0.
    """
    halves = math.log(interval[1] / middle), math.log(other_interval[1] / other)
    factor = math.exp(math.hypot(*halves))
    return middle / other / factor, middle / other * factor


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return median([sample for samples in rounds for sample in samples])


def _blocks(samples: Sequence[float]) -> list[Sequence[float]]:
    """At most `_BLOCKS` blocks of consecutive samples, of equal length or one longer."""
    count = min(_BLOCKS, len(samples))
    ends = [round(len(samples) * number / count) for number in range(count + 1)]
    return [samples[start:end] for start, end in pairwise(ends)]
