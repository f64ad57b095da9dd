"""How many pairs the exact test of a drop needs, from its power."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.statistics.enough import MARGIN, least, normal_quantile
from edgeconv.statistics.matched import Region, is_above, score
from edgeconv.statistics.proportion import proportion_bounds

if TYPE_CHECKING:
    from edgeconv.statistics.evidence import Levels

# An exact test rejects a little later than its score alone says; by how much is found out where
# so few pairs differ that it matters.
_EXACT = 0.9
_MANY = 100
# Of a level, what a relative drop spends on the accuracy that it is relative to.
RELATIVE = 0.02


@lru_cache(maxsize=1024)
def enough_pairs(
    differ: float, limit: float, levels: Levels, right: float | None = None
) -> int | None:
    """How many pairs tell a drop of 0, and one of twice the limit, from the limit.

    `differ` is the share of pairs of which one is right and one is wrong. With so many, a drop
    of twice the limit is found to be above it, and none is found to be below it, each but for
    the chance `levels.missed`. `right` is the accuracy before where the limit is a share of it.
    None where no number of pairs is enough.
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

    far = normal_quantile(min(levels.fail, levels.hold)) + normal_quantile(missed)
    return least(can_tell, far * far * shares / middle**2)


def _limits(samples: int, limit: float, right: float, levels: Levels) -> tuple[float, float]:
    """The limit times the accuracy, at least and at most, for all that so many samples say."""
    spent = RELATIVE * levels.fail, RELATIVE * levels.hold
    low, high = proportion_bounds(round(samples * right), samples, spent[1], spent[0])
    return limit * low, limit * high


def _power(samples: int, limit: float, won: float, drop: float, level: float) -> float:
    """How often a drop is found to be above the limit, where `won` is the share of pairs won."""
    region = Region(samples, limit, _least_score(samples, limit, won, drop, level))
    region.cover(won, won)
    return float(region.probability(np.array([won]), drop)[0])


def _least_score(samples: int, limit: float, won: float, drop: float, level: float) -> float:
    """The score from which the exact test rejects, for about as many pairs as will be won."""
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
