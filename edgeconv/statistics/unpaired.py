"""A drop of a metric between two sets of samples that are not the same: its bounds.

Nothing can be paired, so each of the two values gets bounds of its own, and those of the drop are
their differences. Each is given half of the level (Bonferroni): where both hold, so does the
difference, whatever the two sets are. For shares of right answers that is exact (Clopper and
Pearson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeconv.statistics.evidence import Evidence, Levels


@dataclass(frozen=True)
class UnpairedDrop:
    """How much worse `after` is than `before`, each measured on samples of its own.

    `is_relative`: as a share of `before`, which is above 0.
    """

    before: Evidence
    after: Evidence
    higher_is_better: bool = True
    is_relative: bool = False

    @property
    def method(self) -> str:
        """What the bounds are found by."""
        return f"{self.after.method}, unpaired"

    @property
    def samples(self) -> int:
        """How many samples the smaller set has."""
        return min(self.before.samples, self.after.samples)

    @property
    def value(self) -> float:
        """The drop, as it was measured."""
        return self._drop(self.before.value, self.after.value)

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        """See `Evidence`; the bounds are the test, whatever the limit."""
        low, high = low_level / 2, high_level / 2
        if self.higher_is_better:
            # The least drop: the least that it was before, and the most that it is after.
            before = self.before.bounds(low, high, limit)
            after = self.after.bounds(high, low, limit)
            return self._drop(before[0], after[1]), self._drop(before[1], after[0])
        before = self.before.bounds(high, low, limit)
        after = self.after.bounds(low, high, limit)
        return self._drop(before[1], after[0]), self._drop(before[0], after[1])

    def enough(self, limit: float, levels: Levels) -> int | None:
        """None: more samples would still be other samples."""
        del limit, levels
        return None

    def _drop(self, before: float, after: float) -> float:
        sign = 1.0 if self.higher_is_better else -1.0
        drop = sign * (before - after)
        if not self.is_relative:
            return drop
        return drop / before if before > 0 else math.copysign(math.inf, drop)
