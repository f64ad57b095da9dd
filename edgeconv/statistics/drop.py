"""A drop of accuracy as estimate: paired by sample, as a share, and of samples of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import BoundedEstimate, resolving
from edgeconv.statistics.matched import RELATIVE, enough_pairs, is_above
from edgeconv.statistics.proportion import likely_share, proportion_bounds

if TYPE_CHECKING:
    from edgeconv.statistics.bootstrap import MeanOf
    from edgeconv.statistics.estimate import Levels
    from edgeconv.statistics.proportion import Proportion


@dataclass(frozen=True)
class MatchedDrop:
    """So many of the pairs lost, and won: estimate of a drop of accuracy."""

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
        """That of one pair's part in the drop."""
        return (self.lost + self.won) / self.samples - self.value**2

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
    """A drop as a share of the accuracy before, of `right` samples, of which there is one.

    Both the drop and the accuracy are left to chance (Bonferroni).
    """

    drop: MatchedDrop
    right: int
    method = MatchedDrop.method

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.drop.samples

    @property
    def value(self) -> float:
        """The share."""
        return self.drop.value / (self.right / self.samples)

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


@dataclass(frozen=True)
class UnpairedDrop(BoundedEstimate):
    """How much worse `after` is than `before`, each measured on samples of its own.

    Nothing can be paired, so each of the two values gets bounds of its own, and those of the drop
    are their differences. Each is given half of the level (Bonferroni): where both hold, so does
    the difference, whatever the two sets are. For shares of right answers that is exact.
    `is_relative`: as a share of `before`, which is above 0.
    """

    before: Proportion | MeanOf
    after: Proportion | MeanOf
    higher_is_better: bool = True
    is_relative: bool = False

    @property
    def method(self) -> str:
        """What it is tested by."""
        return f"{self.after.method}, unpaired"

    @property
    def samples(self) -> int:
        """How many samples the smaller set has."""
        return min(self.before.samples, self.after.samples)

    @property
    def value(self) -> float:
        """The drop, as it was measured."""
        return self._drop(self.before.value, self.after.value)

    def bounds(self, low_level: float, high_level: float) -> tuple[float, float]:
        """See `BoundedEstimate`."""
        low, high = low_level / 2, high_level / 2
        if self.higher_is_better:
            # The least drop: the least that it was before, and the most that it is after.
            before, after = self.before.bounds(low, high), self.after.bounds(high, low)
            return self._drop(before[0], after[1]), self._drop(before[1], after[0])
        before, after = self.before.bounds(high, low), self.after.bounds(low, high)
        return self._drop(before[1], after[0]), self._drop(before[0], after[1])

    def enough(self, limit: float, levels: Levels) -> int | None:
        """None: more samples would still be other samples."""
        del limit, levels
        return None

    def _drop(self, before: float, after: float) -> float:
        drop = before - after if self.higher_is_better else after - before
        if not self.is_relative:
            return drop
        return drop / before if before > 0 else math.copysign(math.inf, drop)
