"""Estimates of a drop of accuracy: paired by sample, relative, and of different samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.statistics.estimate import BoundedEstimate, samples_to_resolve
from edgeconv.statistics.matched import RELATIVE, enough_pairs, is_above
from edgeconv.statistics.proportion import likely_share, proportion_bounds

if TYPE_CHECKING:
    from edgeconv.statistics.bootstrap import MeanOf
    from edgeconv.statistics.estimate import Levels
    from edgeconv.statistics.proportion import Proportion


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
