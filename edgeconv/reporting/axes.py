"""Where a number stands in a picture: linear and logarithmic axes with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_DECADE_STEPS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8))
_LEAST_SPREAD = 2.0
_LEAST, _MOST = 1e-6, 1e15


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to positions from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    logarithmic: bool

    def at(self, value: float) -> float:
        """The position of `value`, rounded to a tenth; at the edge where it is beyond."""
        bounded = min(max(value, self.low), self.high)
        low, high = self._bent(self.low), self._bent(self.high)
        share = (self._bent(bounded) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def _bent(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value


def drawable(value: float) -> bool:
    """Whether a size, time or the like can stand on a logarithmic axis."""
    return _LEAST < value < _MOST


def log_axis(values: Iterable[float], start: float, end: float) -> Axis:
    """A logarithmic axis with some room around drawable `values`, of which there is one."""
    given = list(values)
    low, high = min(given) / 1.15, max(given) * 1.15
    short = max(1.0, math.sqrt(_LEAST_SPREAD / (high / low)))
    low, high = low / short, high * short
    ticks: tuple[float, ...] = ()
    for steps in _DECADE_STEPS:
        ticks = tuple(_log_ticks(low, high, steps))
        if len(ticks) >= 3:
            break
    return Axis(low, high, start, end, ticks, logarithmic=True)


def linear_axis(
    values: Iterable[float], start: float, end: float, *, least: float, most: float
) -> Axis:
    """A linear axis with room around `values`, of which there is one, all in [least, most]."""
    given = list(values)
    spread = max(max(given) - min(given), 1e-3)
    low, high = min(given) - 0.15 * spread, max(given) + 0.15 * spread
    low, high = max(low, least), min(high, most)
    return Axis(low, high, start, end, _linear_ticks(low, high), logarithmic=False)


def whole_axis(most: int, start: float, end: float) -> Axis:
    """A linear axis of the whole numbers from 1 to `most`; of a single one, it is in the middle."""
    if most <= 1:
        return Axis(0, 2, start, end, (1,), logarithmic=False)
    ticks = tuple(tick for tick in _linear_ticks(1, most) if tick == int(tick))
    return Axis(1, most, start, end, ticks, logarithmic=False)


def _linear_ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    magnitude = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(m * magnitude for m in (1, 2, 5, 10) if (high - low) / (m * magnitude) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(i * step for i in range(first, last + 1))


def _log_ticks(low: float, high: float, steps: tuple[float, ...]) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    every = max(1, len(inside) // 6)
    return inside[::every]
