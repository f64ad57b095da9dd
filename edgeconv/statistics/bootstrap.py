"""The studentized bootstrap: bounds of the mean of one number for each sample.

B. Efron and R. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 12. Its one-sided
bounds have errors of order 1 / n, bounds by percentiles of 1 / √n: P. Hall, "Theoretical
comparison of bootstrap confidence intervals", Annals of Statistics 16 (1988).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgeconv.statistics.estimate import (
    BoundedEstimate,
    Levels,
    normal_quantile,
    proportion_bounds,
    round_up,
    samples_to_resolve,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]

# With fewer samples that differ from 0, unseen ones may decide.
_FEW = 20
# No bound of fewer samples is trusted, and no smaller number of samples promised.
_LEAST = 2
_LEAST_ENOUGH = 30
# Resampled means beyond a bound that are needed to locate it.
_BEYOND = 20
_MOST_RESAMPLES = 200_000
_TINY = 1e-30
_CHUNK_VALUES = 1 << 22
_FEW_VALUES = 16
_DOUBT = 0.05
_WIDER = 1.2
# The bootstrap exceeds a level slightly, so it gets a fifth less.
KEPT = 0.8


@dataclass(frozen=True)
class Resampling:
    """The number of resamples, and the seed."""

    resamples: int
    seed: int


@dataclass(frozen=True)
class MeanOf(BoundedEstimate):
    """The true mean of one number for each sample.

    `scale` is the largest absolute value that one can have, as far as is known: it bounds what
    unseen samples may add. `has_zero`: a mean of 0 is expected, as of a drop.
    """

    values: tuple[float, ...]
    scale: float
    resampling: Resampling
    has_zero: bool = True

    @property
    def method(self) -> str:
        """The name of the test."""
        return "paired bootstrap" if self.has_zero else "bootstrap"

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The mean."""
        return math.fsum(self.values) / len(self.values)

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """See `BoundedEstimate`."""
        return mean_bounds(self.values, self.scale, low_level, high_level, self.resampling)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples distinguish a mean of 0, and one of twice the limit, from the limit.

        If there are enough already, or 0 is not expected, how many distinguish the present mean.
        """
        variance = _variance_at_most(np.asarray(self.values))
        if not self.has_zero:
            return samples_to_resolve(self.value, limit, variance, self.samples, levels)
        if limit <= 0:
            return None
        hidden = self.scale * -math.log(min(levels.fail, levels.hold)) / limit
        count = max(_LEAST_ENOUGH, _WIDER * levels.far**2 * variance / limit**2)
        if np.count_nonzero(self.values) < _FEW:
            count = max(count, hidden)
        needed = round_up(math.ceil(count))
        if self.samples < needed:
            return needed
        return samples_to_resolve(self.value, limit, variance, self.samples, levels)


@dataclass(frozen=True)
class RelativeMean:
    """A mean over another one above 0, both of one number for each sample."""

    of: MeanOf
    to: tuple[float, ...]

    @property
    def method(self) -> str:
        """The name of the test."""
        return self.of.method

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.of.samples

    @property
    def value(self) -> float:
        """The share."""
        return self.of.value / self._whole

    @property
    def _whole(self) -> float:
        return math.fsum(self.to) / len(self.to)

    def is_above(self, limit: float, level: float) -> bool:
        """See `Estimate`: whether the mean of (number - limit * other) is above 0."""
        return self._beyond(limit).is_above(0.0, level)

    def is_below(self, limit: float, level: float) -> bool:
        """See `Estimate`, likewise."""
        return self._beyond(limit).is_below(0.0, level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """See `MeanOf.enough`."""
        share = tuple(value / self._whole for value in self.of.values)
        estimate = MeanOf(share, self.of.scale / self._whole, self.of.resampling)
        return estimate.enough(limit, levels)

    def _beyond(self, limit: float) -> MeanOf:
        pairs = zip(self.of.values, self.to, strict=True)
        values = tuple(value - limit * whole for value, whole in pairs)
        return MeanOf(values, self.of.scale, self.of.resampling)


def mean_bounds(
    values: tuple[float, ...],
    scale: float,
    low_level: float,
    high_level: float,
    resampling: Resampling,
) -> tuple[float, float]:
    """The bounds of the true mean, each wrong about as often as its level at most.

    On each side the wider of the studentized bootstrap, which is too narrow for few numbers, and
    Student's, which is too narrow for skewed ones. Where fewer than 20 numbers differ from 0, a
    bound is at least the bound of their share (Clopper and Pearson) times `scale`; of a single
    sample it is `scale`.
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
    """The distances of the bounds below and above the mean, in standard errors."""
    least = min(low_level, high_level)
    resamples = max(resampling.resamples, min(_MOST_RESAMPLES, math.ceil(_BEYOND / least)))
    scores = resampled_scores(values, resamples, resampling.seed)
    below, above = (max(1, int((resamples + 1) * level)) for level in (high_level, low_level))
    return float(scores[-above]), -float(scores[below - 1])


@lru_cache(maxsize=16)
def resampled_scores(values: tuple[float, ...], resamples: int, seed: int) -> Floats:
    """The mean of every resample over its standard error, sorted: float64 [resamples]."""
    centered = np.asarray(values, np.float64) - np.mean(values)
    if not centered.any():
        return np.zeros(resamples)
    centered /= np.abs(centered).max()
    rng, count = np.random.default_rng(seed), len(centered)
    kinds, counts = np.unique(centered, return_counts=True)
    scores = []
    step = max(1, _CHUNK_VALUES // count)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if len(kinds) <= _FEW_VALUES:
            times = rng.multinomial(count, counts / count, size=size)
            sums, squares = times @ kinds, times @ kinds**2
        else:
            drawn = centered[rng.integers(0, count, (size, count))]
            sums, squares = drawn.sum(axis=1), np.einsum("ij,ij->i", drawn, drawn)
        means = sums / count
        variance = np.maximum(squares / count - means**2, 0.0) / (count - 1)
        # A resample of equal numbers has no spread, and is beyond every bound.
        scores.append(means / np.sqrt(np.maximum(variance, _TINY)))
    return np.sort(np.concatenate(scores))


def _variance_at_most(numbers: Floats) -> float:
    count = len(numbers)
    if count < _LEAST:
        return 0.0
    centered = numbers - numbers.mean()
    variance = float((centered**2).mean())
    if variance == 0:
        return 0.0
    spread = max(1.0, float((centered**4).mean()) / variance**2 - 1)
    return variance * (1 + normal_quantile(_DOUBT) * math.sqrt(spread / count))
