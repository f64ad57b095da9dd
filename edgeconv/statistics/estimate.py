"""Estimates of numbers, such as a share of right answers, and how many samples decide a limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

# How often an interval, or a conclusion over all comparisons, may be wrong.
LEVEL = 0.05
# No more samples than this are ever asked of the user.
_MOST = 10**8
_DIGITS = 2
_STEP = 1.06
_ABOVE = (1.0, 1.03, 1.07)
# The width of an exact or resampled bound, divided by the normal distribution's.
_WIDER = 1.1
# The part of `Levels.missed` that is planned for.
MARGIN = 0.8


@dataclass(frozen=True)
class Levels:
    """Probabilities of errors of the gate.

    `fail`: a number within its limit fails. `hold`: a number beyond its limit passes. `missed`: a
    number stays inconclusive with enough samples.
    """

    fail: float
    hold: float
    missed: float

    @property
    def far(self) -> float:
        """How many standard errors must be between a number and a limit to distinguish them."""
        return normal_quantile(min(self.fail, self.hold)) + normal_quantile(self.missed)

    def shared(self, count: int) -> Levels:
        """The levels of each of `count` limits, of which a single broken one fails the gate.

        Bonferroni. `hold` is not shared, because all limits must hold: R. Berger, "Multiparameter
        hypothesis testing and acceptance sampling", Technometrics 24 (1982).
        """
        return Levels(self.fail / count, self.hold, self.missed / count)


class Estimate(Protocol):
    """A number that was estimated from paired samples, right answers or rounds."""

    @property
    def method(self) -> str:
        """The name of the test."""

    @property
    def samples(self) -> int:
        """The number of samples."""

    @property
    def value(self) -> float:
        """The measured number."""

    def is_above(self, limit: float, level: float) -> bool:
        """Whether the true number is above the limit; wrong with probability `level` at most."""

    def is_below(self, limit: float, level: float) -> bool:
        """Whether it is at most the limit, likewise."""

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples distinguish the number from the limit; None where none do."""


class BoundedEstimate:
    """An estimate that is tested by bounds of the true number, each at its level."""

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """The lower and the upper bound; they may be infinite."""
        raise NotImplementedError

    def is_above(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return self.bounds(level, level)[0] > limit

    def is_below(self, limit: float, level: float) -> bool:
        """See `Estimate`."""
        return self.bounds(level, level)[1] <= limit


def normal_quantile(level: float) -> float:
    """The quantile of the standard normal distribution at 1 - `level`."""
    return -NormalDist().inv_cdf(level)


def smallest_sufficient(is_enough: Callable[[int], bool], guess: float) -> int | None:
    """The smallest sufficient number, rounded up to two digits; None where none is.

    Power is not monotonic in the number of samples, so larger numbers are checked too. The search
    begins at `guess`.
    """
    count = max(1.0, guess)
    while count > 1 and is_enough(math.ceil(count / _STEP)):
        count /= _STEP
    while count <= _MOST:
        rounded = round_up(math.ceil(count))
        if all(is_enough(math.ceil(rounded * factor)) for factor in _ABOVE):
            return rounded
        count *= _STEP
    return None


def samples_to_resolve(
    value: float, limit: float, variance: float, samples: int, levels: Levels
) -> int | None:
    """How many samples distinguish a number from a limit, if it stays the same.

    `variance` is of one sample's contribution. More than the present `samples`; None
    where the number is too close to the limit.
    """
    distance = abs(value - limit)
    if distance * _MOST <= 1:
        return None
    # One step of a count more on each side: a share of samples moves in steps.
    count = _WIDER * levels.far**2 * variance / distance**2 + 2 / distance
    return round_up(max(math.ceil(count), samples + 1)) if count <= _MOST else None


def round_up(count: int) -> int:
    """The next number with two significant digits: 5412 becomes 5500."""
    unit = int(10 ** max(0, len(str(count)) - _DIGITS))
    return -(-count // unit) * unit


# The level of one-sided bounds that are on the safe side.
_DOUBT = 0.2


def share_interval(count: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share, by the score method.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927).
    """
    square = NormalDist().inv_cdf(1 - LEVEL / 2) ** 2 / samples
    share = count / samples
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def chance_of(right: int, samples: int, guessing: float, tried: int) -> float:
    """The probability of `right` right answers by guessing, in the best of `tried` attempts.

    `guessing` is the probability of a right guess. One-sided and exact, times `tried`
    (Bonferroni); at most 1.
    """
    from scipy.stats import binomtest

    test = binomtest(right, samples, guessing, alternative="greater")
    return float(min(1.0, test.pvalue * tried))


@lru_cache(maxsize=8192)
def proportion_bounds(
    count: int, samples: int, low_level: float, high_level: float
) -> tuple[float, float]:
    """The exact bounds of the true share, each wrong with probability of its level at most.

    C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the case
    of the binomial", Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    low = betaincinv(count, samples - count + 1, low_level) if count else 0.0
    high = betaincinv(count + 1, samples - count, 1 - high_level) if count < samples else 1.0
    return float(low), float(high)


def likely_share(count: int, samples: int) -> tuple[float, float]:
    """Likely bounds of the true share."""
    return proportion_bounds(count, samples, _DOUBT, _DOUBT)


@dataclass(frozen=True)
class Proportion(BoundedEstimate):
    """A share of samples that must not be too small."""

    count: int
    samples: int
    method = "clopper-pearson"

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.samples

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """See `BoundedEstimate`."""
        return proportion_bounds(self.count, self.samples, low_level, high_level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples distinguish the present share from the limit."""
        variance = max(self.value * (1 - self.value), limit * (1 - limit))
        return samples_to_resolve(self.value, limit, variance, self.samples, levels)


@dataclass(frozen=True)
class Flips(Proportion):
    """The share of samples that changed, which must not be too large."""

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples distinguish a share of 0, and one of twice the limit, from the limit.

        If there are enough already, how many distinguish the present share.
        """
        needed = _enough_trials(limit, levels)
        if needed is None or self.samples < needed:
            return needed
        return super().enough(limit, levels)


def _enough_trials(limit: float, levels: Levels) -> int | None:
    if not 0 < limit < 1:
        return None
    far = normal_quantile(levels.fail) + math.sqrt(2) * normal_quantile(levels.missed)
    return smallest_sufficient(
        lambda samples: _can_decide(samples, limit, levels), far * far / limit
    )


def _can_decide(samples: int, limit: float, levels: Levels) -> bool:
    from scipy.special import bdtr, bdtrc, bdtrik

    if proportion_bounds(0, samples, levels.fail, levels.hold)[1] > limit:
        return False
    # The largest count that does not prove a share above the limit.
    most = max(0, math.ceil(bdtrik(1 - levels.fail, samples, limit)) - 1)
    while bdtrc(most, samples, limit) > levels.fail:
        most += 1
    return bool(bdtr(most, samples, min(1.0, 2 * limit)) <= MARGIN * levels.missed)
