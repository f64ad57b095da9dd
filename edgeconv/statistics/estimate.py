"""What samples say of a number that is held against a limit, and how many are enough for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# How often an interval, or a conclusion over all that was compared for it, may be wrong.
LEVEL = 0.05
# More samples than anybody has.
_MOST = 10**8
_DIGITS = 2
_STEP = 1.06
_ABOVE = (1.0, 1.03, 1.07)
# What an exact or resampled bound is wider than that of the normal distribution.
_WIDER = 1.1
# Of the chance that enough samples leave a number open: what is planned for.
MARGIN = 0.8


@dataclass(frozen=True)
class Levels:
    """How often the gate may be wrong: each a probability.

    `fail`: a number is said to be beyond its limit, and is not. `hold`: it is said to keep the
    limit, and does not. `missed`: with enough samples, it is left open.
    """

    fail: float
    hold: float
    missed: float

    @property
    def far(self) -> float:
        """How many standard errors a number must be from a limit that is told from it."""
        return normal_quantile(min(self.fail, self.hold)) + normal_quantile(self.missed)

    def shared(self, count: int) -> Levels:
        """Those of each of so many questions, where one beyond its limit fails them all.

        Bonferroni. All of them must hold, so that this one need not be shared: R. Berger,
        "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982).
        """
        return Levels(self.fail / count, self.hold, self.missed / count)


class Estimate(Protocol):
    """A number and what it rests on: paired samples, right answers, or rounds."""

    @property
    def method(self) -> str:
        """What it is tested by."""

    @property
    def samples(self) -> int:
        """How many samples there are."""

    @property
    def value(self) -> float:
        """The number, as it was measured."""

    def is_above(self, limit: float, level: float) -> bool:
        """Whether the true number is above the limit, said wrongly as often as `level` at most."""

    def is_below(self, limit: float, level: float) -> bool:
        """Whether it is not above the limit, likewise."""

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples can tell the true number from the limit; None where none can."""


class BoundedEstimate:
    """Estimate that is tested by bounds of the true number, each wrong as often as its level."""

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
    """How many standard deviations a normal number is above its mean so rarely."""
    return -NormalDist().inv_cdf(level)


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
    # One step of a count more for each side, for a share of samples moves in steps.
    count = _WIDER * levels.far**2 * variance / distance**2 + 2 / distance
    return rounded_up(max(math.ceil(count), samples + 1)) if count <= _MOST else None


def rounded_up(count: int) -> int:
    """The next number with two digits that count: 5412 becomes 5500."""
    unit = int(10 ** max(0, len(str(count)) - _DIGITS))
    return -(-count // unit) * unit
