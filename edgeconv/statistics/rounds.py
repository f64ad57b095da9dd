"""The interval of a median of times that were taken in rounds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median, stdev
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

# A lone round is cut into so many runs of samples in a row.
_BLOCKS = 10
_LEAST_ROUNDS = 2


def median_interval(rounds: Sequence[Sequence[float]], level: float = LEVEL) -> tuple[float, float]:
    """The confidence interval (low, high) of the median time, in the unit of the samples.

    It misses the true one with the probability `level`, half of it at either end.

    Samples of one process share what its start has dealt out (where memory lies, the clock the
    processor settles at), and samples in a row share the machine's mood, so the rounds count as
    the observations and not the samples: Student's interval of the logarithms of the rounds'
    medians, around the median of all samples. See T. Kalibera and R. Jones, "Rigorous
    benchmarking in reasonable time", ISMM 2013, section 6, for means; logarithms, because what
    differs between rounds is a factor. It is wide for two or three rounds, and holds.

    One round says nothing of other processes: its blocks of samples in a row take the place of
    rounds (batch means; A. Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3),
    and the interval is that of the median within this process. A single sample has no interval,
    and both ends are that sample. Times are above 0.
    """
    from scipy.special import stdtrit

    middle = _median(rounds)
    observed = list(rounds) if len(rounds) > 1 else _blocks(rounds[0])
    logarithms = [math.log(median(one)) for one in observed]
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

    Each is wrong about as often as its level says. A round is one observation: the logarithm of
    the ratio of both medians in it, so that what slowed the machine for a while does not count
    (Kalibera and Jones, as above, section 7). Student's bounds of those, around the ratio of
    both medians of all samples; infinite for fewer than two rounds, or not as many of each.
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
    """The bounds of a median time over another one, of models that were not timed together.

    Each median has its interval around it, as of `median_interval`, by a factor; for factors that
    have nothing to do with each other the squares of their logarithms add up. Times are above 0.
    """
    halves = math.log(interval[1] / middle), math.log(other_interval[1] / other)
    factor = math.exp(math.hypot(*halves))
    return middle / other / factor, middle / other * factor


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return median([sample for one in rounds for sample in one])


def _blocks(samples: Sequence[float]) -> list[Sequence[float]]:
    """Runs of samples in a row of equal length, or one longer by one; at most `_BLOCKS`."""
    count = min(_BLOCKS, len(samples))
    ends = [round(len(samples) * number / count) for number in range(count + 1)]
    return [samples[start:end] for start, end in pairwise(ends)]
