"""What an output says, and how much of that an error leaves: signal and noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = np.ndarray[Any, np.dtype[np.float64]]


def snr_db(signal: float, noise: float) -> float:
    """Decibels of a signal's variance over the mean square of its error, within ±`MAX_SNR_DB`.

    No error is the highest, whatever the signal; a signal that does not vary, or one of both that
    is not finite, is the lowest.
    """
    if noise == 0:
        return MAX_SNR_DB
    if not (math.isfinite(noise) and math.isfinite(signal)) or signal <= 0:
        return -MAX_SNR_DB
    return max(-MAX_SNR_DB, min(MAX_SNR_DB, 10 * math.log10(signal / noise)))


class Signal:
    """The mean and the variance of numbers that come block by block.

    The sums of squares of the blocks are joined around their own means (T. Chan, G. Golub and
    R. LeVeque, "Algorithms for computing the sample variance", The American Statistician 37
    (1983) 242-247), so that a large mean does not hide a small variance.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """One block, of any shape. What is not finite makes the variance so, without a warning."""
        if not values.size:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            mean, squares = float(np.mean(values)), float(np.var(values)) * values.size
            apart, total = mean - self._mean, self._count + values.size
            self._mean += apart * (values.size / total)
            self._squares += squares + apart * apart * (self._count * (values.size / total))
        self._count = total

    @property
    def variance(self) -> float:
        """That of all numbers so far; 0 of none."""
        return self._squares / self._count if self._count else 0.0


class ValueRange:
    """Between which values an output lies, and how much it varies from sample to sample."""

    def __init__(self) -> None:
        self._low: Floats | None = None
        self._high: Floats | None = None

    def add(self, values: NDArray[np.float64]) -> None:
        """Samples of one output, (n, values)."""
        if not values.size:
            return
        low, high = values.min(axis=0), values.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)

    @property
    def span(self) -> tuple[float, float] | None:
        """The smallest and the largest value; None of nothing, and of what is not finite."""
        if self._low is None or self._high is None:
            return None
        low, high = float(self._low.min()), float(self._high.max())
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    @property
    def varies_by(self) -> float | None:
        """The most that any one value of the output differs between two samples; None likewise."""
        if self.span is None or self._low is None or self._high is None:
            return None
        return float((self._high - self._low).max())
