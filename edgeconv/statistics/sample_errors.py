"""How far a model's outputs are from a reference in each sample, and comparisons of two models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.statistics.comparison import mean_interval
from edgeconv.statistics.outputs import snr_db, snr_interval_db
from edgeconv.types import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    OutputArrays = Mapping[Any, NDArray[np.generic]]

_FEW = 2
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
        if self.samples < _FEW or not np.isfinite(self.noise).all():
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
    """What an error is compared with: the variance of the output.

    Of an output that hardly varies the magnitude is all there is, and of zeros a number near 0.
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
