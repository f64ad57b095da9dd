"""A drop of accuracy on the same samples: its bounds, and what it is evidence of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from edgeconv.statistics.enough import normal_quantile, resolving
from edgeconv.statistics.matched import is_above, score
from edgeconv.statistics.power import RELATIVE, enough_pairs
from edgeconv.statistics.proportion import likely_share, proportion_bounds

if TYPE_CHECKING:
    from edgeconv.statistics.evidence import Levels

# A bound is found to this share of its distance from the drop.
_CLOSE = 4e-3
_NEAR = 0.04
_STEPS = 10
_HAIR = 1e-9


@lru_cache(maxsize=8192)
def drop_bounds(
    lost: int, won: int, samples: int, low_level: float, high_level: float
) -> tuple[float, float]:
    """The bounds of the true drop, each wrong at most as often as its level says.

    Of `samples` pairs, `lost` are right before and wrong after, `won` the other way round: all
    true drops that the exact test does not reject (see `matched.py`). At least one sample.
    """
    low = _bound(lost, won, samples, low_level)
    high = -_bound(won, lost, samples, high_level)
    return low, high


@dataclass(frozen=True)
class MatchedDrop:
    """So many of the pairs lost, and won: evidence of a drop of accuracy."""

    lost: int
    won: int
    samples: int

    @property
    def method(self) -> str:
        """What the bounds are found by."""
        return "exact mcnemar"

    @property
    def value(self) -> float:
        """The drop: accuracy before minus accuracy after."""
        return (self.lost - self.won) / self.samples

    @property
    def variance(self) -> float:
        """That of one pair's part in the drop."""
        return (self.lost + self.won) / self.samples - self.value**2

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        """See `Evidence`."""
        low, high = drop_bounds(self.lost, self.won, self.samples, low_level, high_level)
        # A bound is searched for; what decides is the test at the limit.
        if low > limit and not self.is_above(limit, low_level):
            low = limit
        if high <= limit and not self.is_below(limit, high_level):
            high = limit + _HAIR
        return low, high

    def is_above(self, limit: float, level: float) -> bool:
        """Whether the true drop is above the limit, said wrongly at most as often as `level`."""
        return is_above(self.lost, self.won, self.samples, limit, level)

    def is_below(self, limit: float, level: float) -> bool:
        """Whether it is below the limit, likewise."""
        return is_above(self.won, self.lost, self.samples, -limit, level)

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples tell a drop of 0, and one of twice the limit, from the limit.

        Where there are as many already, how many tell it if it stays as it is.
        """
        _, differ = likely_share(self.lost + self.won, self.samples)
        needed = enough_pairs(differ, limit, levels)
        if needed is None or self.samples < needed:
            return needed
        return resolving(self.value, limit, self.variance, self.samples, levels)


@dataclass(frozen=True)
class RelativeDrop:
    """A drop as a share of the accuracy before, of `right` samples."""

    drop: MatchedDrop
    right: int

    @property
    def method(self) -> str:
        """What the bounds are found by."""
        return self.drop.method

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.drop.samples

    @property
    def value(self) -> float:
        """The share; at least one answer was right before."""
        return self.drop.value / (self.right / self.samples)

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        """See `Evidence`. Both the drop and the accuracy are bounded (Bonferroni)."""
        kept = (1 - RELATIVE) * low_level, (1 - RELATIVE) * high_level
        least, most = self._right(low_level), self._right(high_level)
        low, _ = self.drop.bounds(*kept, limit * least[1])
        _, high = self.drop.bounds(*kept, limit * most[0])
        # Which bound of the accuracy is the safe one depends on the sign.
        return low / least[low > 0], high / most[high < 0]

    def is_above(self, limit: float, level: float) -> bool:
        """Whether the true share is above the limit, said wrongly at most as often as `level`."""
        return self.drop.is_above(limit * self._right(level)[1], (1 - RELATIVE) * level)

    def is_below(self, limit: float, level: float) -> bool:
        """Whether it is below the limit, likewise."""
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
        return resolving(self.value, limit, variance, self.samples, levels)


def _bound(lost: int, won: int, samples: int, level: float) -> float:
    """The lower bound of the drop: the largest found that is rejected, and all below it."""
    if lost == 0 and won == 0:
        # What is likeliest to show nothing is that all that differ are won: exact, by hand.
        return float(level ** (1 / samples)) - 1
    middle = (lost - won) / samples
    rejected, accepted = _bracket(lost, won, samples, level)
    while accepted - rejected > _CLOSE * (middle - rejected):
        between = (accepted + rejected) / 2
        if is_above(lost, won, samples, between, level):
            rejected = between
        else:
            accepted = between
    return rejected


def _bracket(lost: int, won: int, samples: int, level: float) -> tuple[float, float]:
    """A drop that is rejected, and one a little above it that is not; -1 is taken as rejected."""
    rejected = _guess(lost, won, samples, level)
    middle = (lost - won) / samples
    step = _NEAR * max(middle - rejected, 1 / samples)
    if is_above(lost, won, samples, rejected, level):
        accepted = min(rejected + step, middle)
        while accepted < middle and is_above(lost, won, samples, accepted, level):
            rejected, accepted = accepted, min(accepted + step, middle)
        return rejected, accepted
    accepted, rejected = rejected, rejected - step
    while rejected > -1 and not is_above(lost, won, samples, rejected, level):
        accepted, rejected = rejected, rejected - step
    return max(rejected, -1.0), accepted


def _guess(lost: int, won: int, samples: int, level: float) -> float:
    """The bound by Tango's score, which holds nearly."""
    far = normal_quantile(level)
    inside = (lost - won) / samples
    # Even steps towards it at first: it is of the order of the standard error.
    step = far * math.sqrt(lost + won + 1) / samples
    while inside - step > -1 and score(lost, won, samples, inside - step) <= far:
        inside -= step
    outside = max(inside - step, -1.0)
    for _ in range(_STEPS):
        between = (inside + outside) / 2
        if score(lost, won, samples, between) > far:
            outside = between
        else:
            inside = between
    return outside
