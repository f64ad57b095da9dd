"""The errors of a model's outputs against a reference, over all samples and in each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeconv.statistics.comparison import mean_interval
from edgeconv.statistics.estimate import LEVEL
from edgeconv.types import MAX_SNR_DB, ROUNDING, OutputError
from edgeconv.types.errors import VerificationFailed

Floats = np.ndarray[Any, np.dtype[np.float64]]

Outputs = Mapping[str, NDArray[np.generic]]

OutputArrays = Mapping[Any, NDArray[np.generic]]


_COSINE_EPSILON = 1e-30
_FEWEST = 8
# By how much an interval is wider for skewness and for few samples: see `snr_interval_db`.
_SKEWED, _FEW = 1.5, 5.0


def output_errors(
    reference: Outputs, actual: Outputs, steps: Mapping[str, float]
) -> tuple[OutputError, ...]:
    """The errors of `actual` against `reference`: arrays [samples, ...] of any dtype, by output.

    `steps` are the quantization steps of those outputs of `actual` that have one. Raises
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
        energies = _by_sample(error**2)
        power = float(np.mean(energies)) if error.size else 0.0
        signal = float(np.var(reference)) if reference.size else 0.0
        signals = _by_sample((reference - np.mean(reference)) ** 2) if error.size else error
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
        snr_interval_db=snr_interval_db(signals, energies),
    )


def _by_sample(squares: NDArray[np.float64]) -> Floats:
    """The mean of each sample's values, float64 [samples]; [] without values."""
    if not squares.size:
        return np.zeros(0)
    means: Floats = np.mean(squares.reshape(len(squares), -1), axis=1)
    return means


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


def snr_interval_db(signals: Floats, energies: Floats) -> tuple[float, float] | None:
    """The 95 % interval of a signal-to-noise ratio in decibels; None if it is not known.

    `signals` and `energies`, float64 [samples], are the mean squares of the output and of its error
    in each sample. The interval is Student's, of the logarithm of the ratio (delta method). Errors
    are skewed, and the largest are seldom among few samples, so it is wider by their skewness
    (N. Johnson, "Modified t tests and confidence intervals for asymmetrical populations", Journal
    of the American Statistical Association 73 (1978)) and for few samples. Both factors were fitted
    to files of which far more samples were measured. Fewer than 8 samples, and errors of 0 or that
    are not finite, have none.
    """
    from scipy.special import stdtrit

    count = len(energies)
    mean, signal = (float(np.mean(each)) if count else 0.0 for each in (energies, signals))
    if count < _FEWEST or not (0 < mean < math.inf and 0 < signal < math.inf):
        return None
    influence = energies / mean - signals / signal
    deviation = float(np.std(influence, ddof=1))
    skewness = float(np.mean(influence**3)) / deviation**3 if deviation else 0.0
    far = float(stdtrit(count - 1, 1 - LEVEL / 2))
    wider = 1 + far * abs(skewness) / (_SKEWED * math.sqrt(count)) + _FEW / count
    half = 10 / math.log(10) * far * deviation / math.sqrt(count) * wider
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


# The share of samples that must have the class that float32 gives them.
LEAST_AGREEMENT = 0.99
# Twice the error, where that can be seen.
MORE_DB, CLOSE_DB = 6.0, 60.0
# For a file whose own ratio on the processor is unknown: kernels may differ by a tenth, 20 dB.
ALONE_DB = 26.0


def is_another(there_db: float, here_db: float) -> bool:
    """Whether kernels compute something else: an SNR there, and with others for the same file.

    Kernels round differently, which costs next to nothing.
    """
    return there_db < min(here_db - MORE_DB, CLOSE_DB)


def loses_answers(lost: int, differ: int, samples: int) -> bool:
    """Whether kernels lose more answers than rounding does, which is as often for the better.

    Of `samples`, `differ` have another answer than with the kernels here, and `lost` more are not
    those of float32. By chance that is at most two standard deviations of a sum of +1 and -1.
    """
    return lost > (1 - LEAST_AGREEMENT) * samples and lost**2 > 4 * differ


# The batches that show it: an even one, and one that no loop over vectors divides.
TOGETHER = (2, 7)
# Sums in another order differ by less than this share of the largest value.
_ROUNDING = 1e-3


def differing_outputs(
    alone: Mapping[str, NDArray[Any]],
    together: Mapping[str, NDArray[Any]],
    steps: Mapping[str, float],
) -> tuple[str, ...]:
    """The outputs whose answers to some samples together are not those to each alone, by name.

    Arrays are (n, *shape), as `edgeconv.data.samples.join_samples` gives them. `steps` has the
    quantization steps of outputs, of which one may be lost by rounding.
    """
    return tuple(
        name
        for name, values in together.items()
        if not _are_alike(alone[name], values, steps.get(name, 0.0))
    )


def same_outputs(alone: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """The outputs (n, *shape) that are the same for all samples, by name."""
    return tuple(
        name
        for name, values in alone.items()
        if values.dtype.kind == "f" and np.ptp(values, axis=0).max(initial=0.0) == 0
    )


def _are_alike(alone: NDArray[Any], together: NDArray[Any], step: float) -> bool:
    if alone.shape != together.shape:
        # Rows of all samples one after the other, as of a reshape to [-1, values].
        count, length = len(alone), alone.shape[1] if alone.ndim > 1 else 0
        if together.shape != (count, count * length, *alone.shape[2:]) or not length:
            return False
        together = together[0].reshape(alone.shape)
    if alone.dtype.kind not in "fiu":
        return bool(np.array_equal(alone, together))
    a, b = (np.asarray(values, np.float64) for values in (alone, together))
    most = float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
    far = 1.5 * step + (_ROUNDING * most if alone.dtype.kind == "f" else 0.0)
    return bool(np.allclose(a, b, 0, far, equal_nan=True))


_FEWEST_PAIRED = 2
_HALVED_DB = 3.0


@dataclass(frozen=True)
class SampleErrors:
    """The errors of a model on the same samples as others that it is compared with.

    `noise` has the mean square error of each output in each sample over that output's variance:
    float64 [outputs, samples]. `same` has the fraction of rows of several values whose largest
    is in the same place, float64 [samples], of the output where that is rarest; None if no
    output has such rows. `step_noise`, float64 [outputs], is the `noise` of an error of one step
    of an output's integers, 0 for floats.
    """

    noise: Floats
    same: Floats | None
    step_noise: Floats

    @cached_property
    def snr_db(self) -> float:
        """The signal-to-noise ratio of the output that has the lowest, in decibels."""
        return snr_db(1.0, float(self._worst.mean())) if self.noise.size else snr_db(1.0, 0.0)

    @property
    def is_within_step(self) -> bool:
        """Whether the errors of all outputs are rounding to the outputs' own integers.

        Rounding to the nearest is off by 0.29 steps on average, and twice that passes.
        """
        return bool((self.noise.mean(axis=1) < self.step_noise / 3).all())

    @cached_property
    def least_snr_db(self) -> float:
        """The lower bound of its 95 % interval."""
        interval = snr_interval_db(np.ones(self.samples), self._worst) if self.noise.size else None
        return self.snr_db if interval is None else interval[0]

    @property
    def agreement(self) -> float | None:
        """The mean of `same`."""
        return None if self.same is None else float(self.same.mean())

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.noise.shape[1])

    @property
    def _worst(self) -> Floats:
        worst: Floats = self.noise[int(np.argmax(self.noise.mean(axis=1)))]
        return worst

    def scaled(self, factor: float) -> SampleErrors:
        """With this many times the noise."""
        return SampleErrors(self.noise * factor, self.same, self.step_noise)

    def is_closer(self, before: SampleErrors, *, margin_db: float) -> bool:
        """Whether the error is smaller beyond noise, and not at the cost of the largest class.

        An error can shrink where it does not matter, and grow where two classes are close. But a
        few samples are as easily lost by chance, which does not halve an error.
        """
        if self.snr_db <= before.snr_db:
            return False
        is_halved = self.snr_db >= before.snr_db + _HALVED_DB
        if self._loses_answers(before) and not is_halved:
            return False
        return self.gain_db(before)[1] > margin_db

    def _loses_answers(self, before: SampleErrors) -> bool:
        """Whether fewer samples keep their largest value, beyond noise."""
        if self.same is None or before.same is None:
            return False
        return mean_interval((before.same - self.same).tolist())[0] > 0

    def gain_db(self, before: SampleErrors) -> tuple[float, float, float]:
        """How much smaller the error is than `before`, in decibels: (mean, low, high).

        The mean over the samples of the logarithm of each one's error, paired, with Student's
        95 % interval. The mean error of both is added to each: else samples without any error
        would decide, and without the logarithm the few that have most of it. So the gain is less
        than the difference of the ratios. Errors that are not finite gain nothing.
        """
        if self.samples < _FEWEST_PAIRED or not np.isfinite(self.noise).all():
            return 0.0, -np.inf, np.inf
        own, other = self.noise.mean(axis=0), before.noise.mean(axis=0)
        if not np.isfinite(other).all():
            return np.inf, np.inf, np.inf
        floor = max(float(own.mean() + other.mean()) / 2, float(np.finfo(np.float64).tiny))
        gains = 10 * np.log10((other + floor) / (own + floor))
        low, high = mean_interval(gains.tolist())
        return float(gains.mean()), low, high


def sample_errors(
    expected: OutputArrays, actual: OutputArrays, steps: Mapping[Any, float]
) -> SampleErrors:
    """The errors of `actual` against `expected`: arrays [samples, ...] of any dtype, by output.

    `steps` are the quantization steps of those outputs of `actual` that have one.
    """
    noise, same, step_noise = [], [], []
    for output, reference in expected.items():
        signal = _signal(reference)
        noise.append(_noise(reference, actual[output], signal))
        step_noise.append(steps.get(output, 0.0) ** 2 / signal)
        if reference.ndim > 1 and reference.shape[-1] > 1:
            same.append(_same(reference, actual[output]))
    count = len(next(iter(expected.values()))) if expected else 0
    return SampleErrors(
        np.array(noise, np.float64).reshape(len(noise), count),
        min(same, key=lambda each: float(each.mean()), default=None),
        np.array(step_noise, np.float64),
    )


def _signal(expected: NDArray[np.generic]) -> float:
    """The power that an error is compared with: the variance of the output.

    For an output that hardly varies it is the mean square, and for zeros a tiny number.
    """
    reference = np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        power, variance = float(np.mean(reference**2)), float(np.var(reference))
    signal = variance if variance > ROUNDING**2 * power else power
    return signal or float(np.finfo(np.float32).tiny)


def _noise(expected: NDArray[np.generic], actual: NDArray[np.generic], signal: float) -> Floats:
    reference, values = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        energy: Floats = np.mean(((values - reference) ** 2).reshape(len(reference), -1), axis=1)
        return energy / signal


def _same(expected: NDArray[np.generic], actual: NDArray[np.generic]) -> Floats:
    rows = expected.argmax(axis=-1) == actual.argmax(axis=-1)
    fraction: Floats = rows.reshape(len(rows), -1).mean(axis=1)
    return fraction
