"""How many samples are enough: what every kind of evidence needs for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.statistics.evidence import Levels

# More than anybody has.
_MOST = 10**8
_DIGITS = 2
_STEP = 1.06
_ABOVE = (1.0, 1.03, 1.07)
# What an exact or resampled bound is wider than that of the normal distribution.
_WIDER = 1.1
# Of the chance that enough samples leave a number open: what is planned for.
MARGIN = 0.8


def least(is_enough: Callable[[int], bool], guess: float) -> int | None:
    """The least number that is enough, as are those above it; None where none is.

    To two digits, and rounded up. What is enough need not be at one sample more, for counts go
    in steps: so several above it are asked for too. The search begins at `guess`.
    """
    count = max(1.0, guess)
    while count > 1 and is_enough(math.ceil(count / _STEP)):
        count /= _STEP
    while count <= _MOST:
        found = rounded_up(math.ceil(count))
        if all(is_enough(math.ceil(found * more)) for more in _ABOVE):
            return found
        count *= _STEP
    return None


def resolving(
    value: float, limit: float, variance: float, samples: int, levels: Levels
) -> int | None:
    """How many samples tell a number from a limit that it is close to, if it stays as it is.

    `variance` is that of one sample's share in it. More than the `samples` there are; None
    where the number is at the limit, or too close to it.
    """
    distance = abs(value - limit)
    if distance * _MOST <= 1:
        return None
    far = normal_quantile(min(levels.fail, levels.hold)) + normal_quantile(levels.missed)
    # One step of a count more for each side, for a share of samples moves in steps.
    count = _WIDER * far * far * variance / distance**2 + 2 / distance
    return rounded_up(max(math.ceil(count), samples + 1)) if count <= _MOST else None


def rounded_up(count: int) -> int:
    """The next number with two digits that count: 5412 becomes 5500."""
    unit = int(10 ** max(0, len(str(count)) - _DIGITS))
    return -(-count // unit) * unit


def normal_quantile(level: float) -> float:
    """How many standard deviations a normal number is above its mean so rarely."""
    from scipy.special import ndtri

    return -float(ndtri(level))
