"""The interval of a median of times that were taken in rounds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median, stdev
from typing import TYPE_CHECKING

from edgeconv.statistics.chance import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

# A lone round is cut into so many runs of samples in a row.
_BLOCKS = 10


def median_interval(rounds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % confidence interval (low, high) of the median time, in the unit of the samples.

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

    middle = median([sample for one in rounds for sample in one])
    observed = list(rounds) if len(rounds) > 1 else _blocks(rounds[0])
    logarithms = [math.log(median(one)) for one in observed]
    count = len(logarithms)
    if count == 1:
        return middle, middle
    half = stdtrit(count - 1, 1 - LEVEL / 2) * stdev(logarithms) / math.sqrt(count)
    factor = math.exp(half)
    return middle / factor, middle * factor


def _blocks(samples: Sequence[float]) -> list[Sequence[float]]:
    """Runs of samples in a row of equal length, or one longer by one; at most `_BLOCKS`."""
    count = min(_BLOCKS, len(samples))
    ends = [round(len(samples) * number / count) for number in range(count + 1)]
    return [samples[start:end] for start, end in pairwise(ends)]
