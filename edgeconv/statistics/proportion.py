"""A share of samples, such as of right answers, and what it says of the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import (
    LEVEL,
    MARGIN,
    BoundedEstimate,
    least,
    normal_quantile,
    resolving,
)

if TYPE_CHECKING:
    from edgeconv.statistics.estimate import Levels

# Of 1, how often a true share is above the one that is taken to be on the safe side.
_DOUBT = 0.2


def share_interval(count: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share, by the score method.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927): it stays within 0 and 1, and
    holds for few samples too.
    """
    from scipy.stats import binomtest

    interval = binomtest(count, samples).proportion_ci(1 - LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def chance_of(right: int, samples: int, guessing: float, tried: int) -> float:
    """How probable it is that guessing has as many right in one of `tried` attempts; at most 1.

    `guessing` is the probability of a right guess. One-sided and exact, times `tried`
    (Bonferroni): the best of many attempts looks good even where all of them guess.
    """
    from scipy.stats import binomtest

    test = binomtest(right, samples, guessing, alternative="greater")
    return float(min(1.0, test.pvalue * tried))


@lru_cache(maxsize=8192)
def proportion_bounds(
    count: int, samples: int, low_level: float, high_level: float
) -> tuple[float, float]:
    """The bounds of the true share, each wrong at most as often as its level says.

    C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the case
    of the binomial", Biometrika 26 (1934): exact for any number of samples.
    """
    from scipy.special import betaincinv

    low = betaincinv(count, samples - count + 1, low_level) if count else 0.0
    high = betaincinv(count + 1, samples - count, 1 - high_level) if count < samples else 1.0
    return float(low), float(high)


def likely_share(count: int, samples: int) -> tuple[float, float]:
    """The shares that the true one is hardly below, and hardly above."""
    return proportion_bounds(count, samples, _DOUBT, _DOUBT)


@dataclass(frozen=True)
class Proportion(BoundedEstimate):
    """So many of the samples: estimate of a share that must not be too small."""

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
        """How many samples tell it from the limit if it stays as it is."""
        variance = max(self.value * (1 - self.value), limit * (1 - limit))
        return resolving(self.value, limit, variance, self.samples, levels)


@dataclass(frozen=True)
class Flips(Proportion):
    """So many samples that changed: estimate of a share that must not be too large."""

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples tell a share of 0, and one of twice the limit, from the limit.

        Where there are as many already, how many tell it if it stays as it is.
        """
        needed = _enough_trials(limit, levels)
        if needed is None or self.samples < needed:
            return needed
        return super().enough(limit, levels)


def _enough_trials(limit: float, levels: Levels) -> int | None:
    if not 0 < limit < 1:
        return None
    far = normal_quantile(levels.fail) + math.sqrt(2) * normal_quantile(levels.missed)
    return least(lambda samples: _is_told(samples, limit, levels), far * far / limit)


def _is_told(samples: int, limit: float, levels: Levels) -> bool:
    from scipy.special import bdtr, bdtrc, bdtrik

    if proportion_bounds(0, samples, levels.fail, levels.hold)[1] > limit:
        return False
    # The most that may happen without a share above the limit being sure.
    most = max(0, math.ceil(bdtrik(1 - levels.fail, samples, limit)) - 1)
    while bdtrc(most, samples, limit) > levels.fail:
        most += 1
    return bool(bdtr(most, samples, min(1.0, 2 * limit)) <= MARGIN * levels.missed)
