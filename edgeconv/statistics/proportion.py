"""Estimates of a share of samples, such as of right answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import (
    LEVEL,
    MARGIN,
    BoundedEstimate,
    normal_quantile,
    samples_to_resolve,
    smallest_sufficient,
)

if TYPE_CHECKING:
    from edgeconv.statistics.estimate import Levels

# The level of one-sided bounds that are on the safe side.
_DOUBT = 0.2


def share_interval(count: int, samples: int) -> tuple[float, float]:
    """The 95 % interval of a share, by the score method.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927).
    """
    from scipy.stats import binomtest

    interval = binomtest(count, samples).proportion_ci(1 - LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


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
