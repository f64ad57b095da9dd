"""The errors of a model's outputs against a reference, and the signal that they leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.statistics.estimate import LEVEL
from edgeconv.types import MAX_SNR_DB, OutputError
from edgeconv.types.errors import VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Outputs = Mapping[str, NDArray[np.generic]]

_COSINE_EPSILON = 1e-30
_FEWEST = 8


def output_errors(
    reference: Outputs, actual: Outputs, steps: Mapping[str, float]
) -> tuple[OutputError, ...]:
    """The errors of `actual` against `reference`: arrays [samples, ...] of any dtype, by output.

    `steps` are the quantization steps of those outputs of `actual` that values one. Raises
    `VerificationFailed` where the outputs differ in names or shapes.
    """
    if set(reference) != set(actual):
        raise VerificationFailed(
            f"the model has the outputs {', '.join(sorted(actual))} instead of "
            f"{', '.join(sorted(reference))}"
        )
    return tuple(
        _output_error(name, reference[name], actual[name], steps.get(name, 0.0))
        for name in sorted(reference)
    )


def _output_error(
    name: str, expected: NDArray[np.generic], actual: NDArray[np.generic], step: float
) -> OutputError:
    if expected.shape != actual.shape:
        raise VerificationFailed(
            f"output {name!r} has shape {actual.shape}, the reference {expected.shape}",
            hint="this is a bug of the converter or the runtime; look at the operators before it",
        )
    if {expected.dtype.kind, actual.dtype.kind} == {"S"}:
        return _string_error(name, float(np.mean(expected != actual)), len(expected))
    reference = np.asarray(expected, np.float64)
    values = np.asarray(actual, np.float64)
    value_range = OutputRange()
    value_range.add(reference.reshape(len(reference), -1) if reference.size else reference)
    # Values that are not finite give errors that are not, without a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        error = values - reference
        energies = np.mean((error**2).reshape(len(error), -1), axis=1) if error.size else error
        power = float(np.mean(energies)) if error.size else 0.0
        signal = float(np.var(reference)) if reference.size else 0.0
        norms = float(np.linalg.norm(reference) * np.linalg.norm(values))
    return OutputError(
        output=name,
        snr_db=snr_db(signal, power),
        max_abs_error=float(np.max(np.abs(error), initial=0.0)),
        rms_error=math.sqrt(power),
        rms_reference=math.sqrt(float(np.mean(reference**2))) if reference.size else 0.0,
        cosine=float(np.vdot(reference, values)) / norms
        if norms > _COSINE_EPSILON
        else float(power == 0),
        argmax_agreement=_argmax_agreement(reference, values),
        span=value_range.span,
        varies_by=value_range.varies_by,
        step=step,
        samples=len(reference),
        snr_interval_db=snr_interval_db(signal, energies.reshape(-1)),
    )


def _argmax_agreement(reference: NDArray[np.float64], values: NDArray[np.float64]) -> float | None:
    if reference.ndim != 2 or reference.shape[1] < 2 or not len(reference):
        return None
    return float(np.mean(reference.argmax(axis=1) == values.argmax(axis=1)))


def _string_error(name: str, differing: float, samples: int) -> OutputError:
    """The error of an output of strings: each that differs is an error as large as the signal."""
    return OutputError(
        output=name,
        snr_db=-10 * math.log10(differing) if differing else MAX_SNR_DB,
        max_abs_error=float(differing > 0),
        rms_error=math.sqrt(differing),
        rms_reference=1.0,
        cosine=1 - differing,
        argmax_agreement=1 - differing,
        samples=samples,
    )


def snr_db(signal: float, noise: float) -> float:
    """A signal's variance over the mean square of its error in decibels, within ±`MAX_SNR_DB`.

    The highest without any error; the lowest for a constant signal and for values that are not
    finite.
    """
    if noise == 0:
        return MAX_SNR_DB
    if not (math.isfinite(noise) and math.isfinite(signal)) or signal <= 0:
        return -MAX_SNR_DB
    return max(-MAX_SNR_DB, min(MAX_SNR_DB, 10 * math.log10(signal / noise)))


def snr_interval_db(signal: float, energies: Floats) -> tuple[float, float] | None:
    """The 95 % interval of a signal-to-noise ratio in decibels; None if it is not known.

    `energies`, float64 [samples], are the mean square errors of the samples. The interval of their
    mean is Student's, of its logarithm (delta method), since they are skewed; the signal is taken
    as known. Fewer than 8 samples, and errors of 0 or that are not finite, have none.
    """
    from scipy.special import stdtrit

    count = len(energies)
    mean = float(np.mean(energies)) if count else 0.0
    if count < _FEWEST or not (0 < mean < math.inf and 0 < signal < math.inf):
        return None
    far = float(stdtrit(count - 1, 1 - LEVEL / 2)) * float(np.std(energies, ddof=1))
    half = 10 / math.log(10) * far / (mean * math.sqrt(count))
    ratio = snr_db(signal, mean)
    return ratio - half, ratio + half


class Signal:
    """The variance of numbers that come block by block, stable for large means.

    T. Chan, G. Golub and R. LeVeque, "Algorithms for computing the sample variance", The American
    Statistician 37 (1983) 242-247.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Add a block, float64 of any shape. Values that are not finite make the variance NaN."""
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
        """The variance of all numbers so far; 0 without any."""
        return self._squares / self._count if self._count else 0.0


class OutputRange:
    """The range of an output, and how much it varies between samples."""

    def __init__(self) -> None:
        self._low: Floats | None = None
        self._high: Floats | None = None

    def add(self, values: NDArray[np.float64]) -> None:
        """Add samples of the output, float64 [samples, values]."""
        if not values.size:
            return
        low, high = values.min(axis=0), values.max(axis=0)
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)

    @property
    def span(self) -> tuple[float, float] | None:
        """The smallest and the largest value; None without samples, or if one is not finite."""
        if self._low is None or self._high is None:
            return None
        low, high = float(self._low.min()), float(self._high.max())
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None

    @property
    def varies_by(self) -> float | None:
        """The largest difference of a value between two samples; None likewise."""
        if self.span is None or self._low is None or self._high is None:
            return None
        return float((self._high - self._low).max())
