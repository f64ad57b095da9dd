"""Intervals of medians of times that were measured in rounds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median, stdev
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

# A single round is split into this number of blocks of consecutive samples.
_BLOCKS = 10
_LEAST_ROUNDS = 2


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
