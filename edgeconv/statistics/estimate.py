"""Estimates of numbers from samples, and how many samples decide a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

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

    `variance` is that of the contribution of one sample. More than the present `samples`; None
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
