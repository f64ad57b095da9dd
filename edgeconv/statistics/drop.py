"""Estimates of a drop of accuracy: paired by sample, relative, and of different samples.

Of `samples` pairs, `lost` are right before and wrong after, and `won` the reverse; the drop is
(lost - won) / samples. The test of a limit is exact: the tail of Tango's score statistic (see
`paired.py`) over all possible outcomes, for the worst share of pairs that differ. H. Hsueh, J. Liu
and J. Chen, "Unconditional exact tests for equivalence or noninferiority for paired binary
endpoints", Biometrics 57 (2001) 478-483. The worst share is searched in its confidence set, whose
level is added: R. Berger and D. Boos, "P values maximized over a confidence set for the nuisance
parameter", Journal of the American Statistical Association 89 (1994) 1012-1016.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from edgeconv.statistics.bootstrap import MeanOf
from edgeconv.statistics.estimate import (
    MARGIN,
    BoundedEstimate,
    Levels,
    Proportion,
    likely_share,
    normal_quantile,
    proportion_bounds,
    samples_to_resolve,
    smallest_sufficient,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]
# The part of the level that is spent on the share of pairs that differ.
_SPENT = 0.02
# Outcomes beyond this number of standard deviations are ignored: less than 1 in 10^10.
_FAR = 6.5
_AWAY = 15
_COARSE, _FINE = 11, 5
_ROUNDING = 1e-9
_TINY = 1e-12
# An exact test rejects slightly later than its score suggests; below this number of differing
# pairs that is computed.
_EXACT = 0.9
_MANY = 100
# The part of the level that a relative drop spends on the accuracy that it is relative to.
RELATIVE = 0.02


@dataclass(frozen=True)
class MatchedDrop:
    """A drop of accuracy, from the pairs of answers that were lost and won."""

    lost: int
    won: int
    samples: int
    method = "exact mcnemar"

    @property
    def value(self) -> float:
        """The drop: accuracy before minus accuracy after."""
        return (self.lost - self.won) / self.samples

    @property
    def variance(self) -> float:
        """The variance of the contribution of one pair."""
        return (self.lost + self.won) / self.samples - self.value**2

    def is_above(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return is_above(self.lost, self.won, self.samples, limit, level)

    def is_below(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return is_above(self.won, self.lost, self.samples, -limit, level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples distinguish a drop of 0, and one of twice the limit, from the limit.

        Where there are enough already, how many distinguish the present drop.
        """
        _, differ = likely_share(self.lost + self.won, self.samples)
        needed = enough_pairs(differ, limit, levels)
        if needed is None or self.samples < needed:
            return needed
        return samples_to_resolve(self.value, limit, self.variance, self.samples, levels)


@dataclass(frozen=True)
class RelativeDrop:
    """A drop relative to the accuracy before, of `right` right answers (at least one).

    The level is shared by the bounds of the drop and of that accuracy (Bonferroni).
    """

    drop: MatchedDrop
    right: int
    method = MatchedDrop.method

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.drop.samples

    @property
    def value(self) -> float:
        """The relative drop."""
        return self.drop.value / (self.right / self.samples)

    def is_above(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return self.drop.is_above(limit * self._right(level)[1], (1 - RELATIVE) * level)

    def is_below(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return self.drop.is_below(limit * self._right(level)[0], (1 - RELATIVE) * level)

    def _right(self, level: float) -> tuple[float, float]:
        spent = RELATIVE * level
        return proportion_bounds(self.right, self.samples, spent, spent)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """As of a `MatchedDrop`."""
        _, differ = likely_share(self.drop.lost + self.drop.won, self.samples)
        right, _ = likely_share(self.right, self.samples)
        needed = enough_pairs(differ, limit, levels, right)
        if needed is None or self.samples < needed:
            return needed
        accuracy = self.right / self.samples
        variance = self.drop.variance / accuracy**2
        return samples_to_resolve(self.value, limit, variance, self.samples, levels)


@dataclass(frozen=True)
class UnpairedDrop(BoundedEstimate):
    """A drop between two different sets of samples.

    The bounds are differences of the bounds of both values, each at half of the level
    (Bonferroni), which is exact for shares of right answers. `is_relative`: over `before`, which
    is above 0.
    """

    before: Proportion | MeanOf
    after: Proportion | MeanOf
    higher_is_better: bool = True
    is_relative: bool = False

    @property
    def method(self) -> str:
        """The name of the test."""
        return f"{self.after.method}, unpaired"

    @property
    def samples(self) -> int:
        """The number of samples of the smaller set."""
        return min(self.before.samples, self.after.samples)

    @property
    def value(self) -> float:
        """The measured drop."""
        return self._drop(self.before.value, self.after.value)

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """See `BoundedEstimate`."""
        low, high = low_level / 2, high_level / 2
        if self.higher_is_better:
            before, after = self.before.bounds(low, high), self.after.bounds(high, low)
            return self._drop(before[0], after[1]), self._drop(before[1], after[0])
        before, after = self.before.bounds(high, low), self.after.bounds(low, high)
        return self._drop(before[1], after[0]), self._drop(before[0], after[1])

    def enough(self, limit: float, levels: Levels) -> int | None:
        """None: more samples would still be different ones."""
        del limit, levels
        return None

    def _drop(self, before: float, after: float) -> float:
        drop = before - after if self.higher_is_better else after - before
        if not self.is_relative:
            return drop
        return drop / before if before > 0 else math.copysign(math.inf, drop)


def drop_p_value(lost: int, won: int, samples: int, drop: float, level: float) -> float:
    """An upper bound of the p-value of a true drop of at most `drop`, for a test at `level`."""
    observed = float(score(lost, won, samples, drop))
    if observed <= 0:
        return 1.0
    region = RejectionRegion(samples, drop, observed)
    low, high = _shares(lost + won, samples, drop, _SPENT * level)
    if low > high:
        return _SPENT * level
    # Even steps of the square root: a share varies by the root of itself.
    roots = np.linspace(np.sqrt(low), np.sqrt(high), _COARSE)
    region.cover(low, high)
    tails = region.probability(roots**2)
    best = int(tails.argmax())
    step = roots[1] - roots[0]
    near = np.linspace(roots[best] - step, roots[best] + step, _FINE + 2)[1:-1] ** 2
    finer = region.probability(near.clip(low, high))
    return float(min(1.0, max(tails[best], finer.max()) + _SPENT * level))


def is_above(lost: int, won: int, samples: int, drop: float, level: float) -> bool:
    """Whether the true drop is above `drop`; wrong with probability `level` at most."""
    observed = float(score(lost, won, samples, drop))
    if observed <= 0:
        return False
    low, high = _shares(lost + won, samples, drop, _SPENT * level)
    if low <= high:
        # The likeliest share alone is usually enough to decide that it is not.
        share = min(max((lost + won) / samples - drop, 2 * low), 2 * high) / 2
        region = RejectionRegion(samples, drop, observed)
        region.cover(share, share)
        if region.probability(np.array([share]))[0] > (1 - _SPENT) * level:
            return False
    return drop_p_value(lost, won, samples, drop, level) <= level


def score(lost: Floats | int, won: Floats | int, samples: int, drop: float) -> Floats | np.float64:
    """Tango's statistic of a true drop, standard normal for many samples.

    `lost` and `won` are ints or float64 [n], as is the result.
    """
    half = (2 * samples - lost + won) * drop - lost - won
    product = 8.0 * samples * won * drop * (1 - drop)
    share = (np.sqrt(np.maximum(half * half + product, 0.0)) - half) / (4 * samples)
    variance = np.maximum(samples * (2 * share + drop * (1 - drop)), _TINY)
    return (lost - won - samples * drop) / np.sqrt(variance)


class RejectionRegion:
    """All outcomes (lost, won) of `samples` pairs whose score is at least `threshold`, above 0."""

    def __init__(self, samples: int, drop: float, threshold: float) -> None:
        self._samples, self._drop, self._threshold = samples, drop, threshold
        self._won: Floats = np.zeros(0)
        self._from: Floats = np.zeros(0)

    def cover(self, low: float, high: float) -> None:
        """Compute the region where it matters for true shares won between `low` and `high`."""
        mean = self._samples * low, self._samples * high
        first = max(0.0, np.floor(mean[0] - _FAR * np.sqrt(mean[0])))
        last = min(self._samples, np.ceil(mean[1] + _FAR * np.sqrt(mean[1]) + _AWAY))
        self._won = np.arange(first, last + 1)
        self._from = self._least_lost(self._won)

    def probability(self, won: Floats, drop: float | None = None) -> Floats:
        """The probability of the region for covered true shares won: float64 [m] for [m].

        The true `drop` is by default the region's.
        """
        from scipy.special import betainc, gammaln, xlog1py, xlogy

        share, count, n = won[:, None], self._won, self._samples
        ways = gammaln(n + 1) - gammaln(count + 1) - gammaln(n - count + 1)
        mass = np.exp(ways + xlogy(count, share) + xlog1py(n - count, -share))
        # The share of the pairs that are not won; irrelevant if all are.
        of_rest = (share + (self._drop if drop is None else drop)) / np.maximum(1 - share, _TINY)
        rest = n - count
        a, b = np.maximum(self._from, 1.0), np.maximum(rest - self._from + 1, 1.0)
        tail = betainc(a, b, of_rest.clip(0.0, 1.0))
        tail = np.where(self._from > rest, 0.0, np.where(self._from < 1, 1.0, tail))
        probability: Floats = (mass * tail).sum(axis=1)
        return probability

    def _least_lost(self, won: Floats) -> Floats:
        """The smallest number lost in the region; above the number of other pairs if none."""
        low = np.maximum(np.floor(won + self._samples * self._drop), 0.0) - 1
        high = self._samples - won + 1
        low = np.minimum(low, high - 1)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            inside = score(middle, won, self._samples, self._drop) >= self._threshold - _ROUNDING
            high, low = np.where(inside, middle, high), np.where(inside, low, middle)
        return high


def _shares(differ: int, samples: int, drop: float, level: float) -> tuple[float, float]:
    """The confidence interval of the share won at a true drop, from the pairs that differ."""
    low, high = proportion_bounds(differ, samples, level / 2, level / 2)
    lowest, most = max(0.0, -drop), (1 - drop) / 2
    return max(lowest, (low - drop) / 2), min(most, (high - drop) / 2)


@lru_cache(maxsize=1024)
def enough_pairs(
    differ: float, limit: float, levels: Levels, right: float | None = None
) -> int | None:
    """How many pairs distinguish a drop of 0, and one of twice the limit, from the limit.

    `differ` is the share of pairs whose answers differ. Each test succeeds with probability
    1 - `levels.missed`. `right` is the accuracy before, where the limit is relative to it. None
    where no number of pairs is enough.
    """
    if limit <= 0:
        return None
    middle = limit * (1.0 if right is None else right)
    drop = min(1.0, 2 * middle)
    shares = max(differ, drop)
    missed = MARGIN * levels.missed
    spent = RELATIVE if right is not None else 0.0

    def can_tell(samples: int) -> bool:
        low, high = (middle, middle) if right is None else _limits(samples, limit, right, levels)
        if high >= drop:
            return False
        fail, hold = (1 - spent) * levels.fail, (1 - spent) * levels.hold
        caught = _power(samples, high, (shares - drop) / 2, drop, fail)
        return caught >= 1 - missed and _power(samples, -low, differ / 2, 0.0, hold) >= 1 - missed

    far = replace(levels, missed=missed).far
    return smallest_sufficient(can_tell, far * far * shares / middle**2)


def _limits(samples: int, limit: float, right: float, levels: Levels) -> tuple[float, float]:
    """The bounds of the limit times the accuracy, for this number of samples."""
    spent = RELATIVE * levels.fail, RELATIVE * levels.hold
    low, high = proportion_bounds(round(samples * right), samples, spent[1], spent[0])
    return limit * low, limit * high


def _power(samples: int, limit: float, won: float, drop: float, level: float) -> float:
    """The power of the test of a drop above the limit; `won` is the share of pairs won."""
    region = RejectionRegion(samples, limit, _least_score(samples, limit, won, drop, level))
    region.cover(won, won)
    return float(region.probability(np.array([won]), drop)[0])


def _least_score(samples: int, limit: float, won: float, drop: float, level: float) -> float:
    """The smallest score that the exact test rejects, for the expected number of pairs won."""
    differ, typical = samples * (2 * won + drop), round(samples * won)
    if differ > _MANY:
        return normal_quantile(_EXACT * level)
    low, high = math.floor(typical + samples * limit), samples - typical
    while high - low > 1:
        middle = (low + high) // 2
        if is_above(middle, typical, samples, limit, level):
            high = middle
        else:
            low = middle
    return float(score(high, typical, samples, limit))
