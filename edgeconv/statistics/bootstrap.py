"""The paired bootstrap: bounds of the mean of any numbers, one a sample.

Studentised: samples are drawn again and again from those there are, and what is looked at is how
far the mean of the drawn is from that of all, in its own standard errors. B. Efron and R.
Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 12; P. Hall, "Theoretical
comparison of bootstrap confidence intervals", Annals of Statistics 16 (1988), for why this one:
a one-sided bound of it is off by the order of 1 / n, and that of the percentiles of 1 / √n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.statistics.estimate import BoundedEstimate, normal_quantile, resolving, rounded_up
from edgeconv.statistics.proportion import proportion_bounds

if TYPE_CHECKING:
    from edgeconv.statistics.estimate import Levels

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Where fewer samples than these differ from 0, what is not among them may decide.
_FEW = 20
# Below these no bound is trusted, or a number of samples promised.
_LEAST = 2
_LEAST_ENOUGH = 30
# Resampled means that must be beyond a bound, for its place among them to be known.
_BEYOND = 20
_MOST_RESAMPLES = 200_000
_TINY = 1e-30
_CHUNK_VALUES = 1 << 22
_FEW_VALUES = 16
_DOUBT = 0.05
_WIDER = 1.2
# The bootstrap holds a level nearly, not exactly: so it is given a fifth less.
KEPT = 0.8


@dataclass(frozen=True)
class Resampling:
    """How often samples are drawn, and from which seed."""

    resamples: int
    seed: int


@dataclass(frozen=True)
class MeanOf(BoundedEstimate):
    """One number a sample: estimate of their true mean.

    `scale` is the most that one of them can be, either way, so far as that is known: it bounds
    what few samples that differ from 0 may hide. `has_zero` says that a true mean of 0 is what
    is hoped for, as of a drop.
    """

    values: tuple[float, ...]
    scale: float
    resampling: Resampling
    has_zero: bool = True

    @property
    def method(self) -> str:
        """What it is tested by."""
        return "paired bootstrap" if self.has_zero else "bootstrap"

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The mean."""
        return math.fsum(self.values) / len(self.values)

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """See `BoundedEstimate`; of a single sample they are all that can be."""
        return mean_bounds(self.values, self.scale, low_level, high_level, self.resampling)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples tell a mean of 0, and one of twice the limit, from the limit.

        Where there are as many already, or 0 is not hoped for, how many tell it if it stays as
        it is.
        """
        variance = _variance_at_most(np.asarray(self.values))
        if not self.has_zero:
            return resolving(self.value, limit, variance, self.samples, levels)
        if limit <= 0:
            return None
        hidden = self.scale * -math.log(min(levels.fail, levels.hold)) / limit
        count = max(_LEAST_ENOUGH, _WIDER * levels.far**2 * variance / limit**2)
        if np.count_nonzero(self.values) < _FEW:
            count = max(count, hidden)
        needed = rounded_up(math.ceil(count))
        if self.samples < needed:
            return needed
        return resolving(self.value, limit, variance, self.samples, levels)


@dataclass(frozen=True)
class RelativeMean:
    """A mean as a share of another one: one number a sample of each, and that one above 0."""

    of: MeanOf
    to: tuple[float, ...]

    @property
    def method(self) -> str:
        """What it is tested by."""
        return self.of.method

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.of.samples

    @property
    def value(self) -> float:
        """The share."""
        return self.of.value / self._whole

    @property
    def _whole(self) -> float:
        return math.fsum(self.to) / len(self.to)

    def is_above(self, limit: float, level: float) -> bool:
        """See `Estimate`: of how far the one is beyond the limit times the other."""
        return self._beyond(limit).is_above(0.0, level)

    def is_below(self, limit: float, level: float) -> bool:
        """See `Estimate`, likewise."""
        return self._beyond(limit).is_below(0.0, level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """As of a `MeanOf`."""
        share = tuple(one / self._whole for one in self.of.values)
        estimate = MeanOf(share, self.of.scale / self._whole, self.of.resampling)
        return estimate.enough(limit, levels)

    def _beyond(self, limit: float) -> MeanOf:
        pairs = zip(self.of.values, self.to, strict=True)
        values = tuple(one - limit * whole for one, whole in pairs)
        return MeanOf(values, self.of.scale, self.of.resampling)


def mean_bounds(
    values: tuple[float, ...],
    scale: float,
    low_level: float,
    high_level: float,
    resampling: Resampling,
) -> tuple[float, float]:
    """The bounds of the true mean, each wrong about as often as its level says at most.

    The wider of the studentised bootstrap's and Student's at either end, for the one is too
    narrow where numbers are few, and the other where they are skewed. Where fewer than 20 of the
    numbers are other than 0, each bound is at least as far out as that part of all samples may
    be (Clopper and Pearson) times `scale`, which is all there is for a single sample.
    """
    from scipy.special import stdtrit

    numbers = np.asarray(values, np.float64)
    count = len(numbers)
    if count < _LEAST:
        return (-scale, scale) if scale else (-math.inf, math.inf)
    mean = float(numbers.mean())
    error = float(numbers.std(ddof=1)) / math.sqrt(count)
    low_level, high_level = KEPT * low_level, KEPT * high_level
    ups, downs = _resampled(values, low_level, high_level, resampling)
    low = mean - error * max(ups, -stdtrit(count - 1, low_level))
    high = mean + error * max(downs, -stdtrit(count - 1, high_level))
    if np.count_nonzero(numbers) < _FEW:
        above = proportion_bounds(int((numbers > 0).sum()), count, low_level, high_level)[1]
        below = proportion_bounds(int((numbers < 0).sum()), count, high_level, low_level)[1]
        low, high = min(low, -below * scale), max(high, above * scale)
    return float(low), float(high)


def _resampled(
    values: tuple[float, ...], low_level: float, high_level: float, resampling: Resampling
) -> tuple[float, float]:
    """How far a bound is below, and above the mean, in standard errors."""
    least = min(low_level, high_level)
    resamples = max(resampling.resamples, min(_MOST_RESAMPLES, math.ceil(_BEYOND / least)))
    scores = resampled_scores(values, resamples, resampling.seed)
    below, above = (max(1, int((resamples + 1) * one)) for one in (high_level, low_level))
    return float(scores[-above]), -float(scores[below - 1])


@lru_cache(maxsize=16)
def resampled_scores(values: tuple[float, ...], resamples: int, seed: int) -> Floats:
    """The mean of every resample in standard errors of its own, the lowest first."""
    centred = np.asarray(values, np.float64) - np.mean(values)
    if not centred.any():
        return np.zeros(resamples)
    centred /= np.abs(centred).max()
    rng, count = np.random.default_rng(seed), len(centred)
    kinds, counts = np.unique(centred, return_counts=True)
    found = []
    step = max(1, _CHUNK_VALUES // count)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if len(kinds) <= _FEW_VALUES:
            times = rng.multinomial(count, counts / count, size=size)
            sums, squares = times @ kinds, times @ kinds**2
        else:
            drawn = centred[rng.integers(0, count, (size, count))]
            sums, squares = drawn.sum(axis=1), np.einsum("ij,ij->i", drawn, drawn)
        means = sums / count
        variance = np.maximum(squares / count - means**2, 0.0) / (count - 1)
        # In samples that are few and alike there may be no spread at all: beyond every bound.
        found.append(means / np.sqrt(np.maximum(variance, _TINY)))
    return np.sort(np.concatenate(found))


def _variance_at_most(numbers: Floats) -> float:
    """The variance of the numbers, and as much more as it may be by chance."""
    count = len(numbers)
    if count < _LEAST:
        return 0.0
    centred = numbers - numbers.mean()
    variance = float((centred**2).mean())
    if variance == 0:
        return 0.0
    spread = max(1.0, float((centred**4).mean()) / variance**2 - 1)
    return variance * (1 + normal_quantile(_DOUBT) * math.sqrt(spread / count))
