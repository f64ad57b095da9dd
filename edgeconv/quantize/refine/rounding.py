"""Weights to integers so that a layer's output, and not each weight, comes closest.

The error of a layer is quadratic in its weights: (Q - W)' H (Q - W) for each output channel,
where H is the second moment of the inputs. Rounding one weight after the other and passing
its error on to those that follow is "GPTQ" (Frantar, Ashkboos, Hoefler, Alistarh 2023,
"GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
section 3); that the best rounding is not the nearest was shown by Nagel, Amjad, van Baalen,
Louizos, Blankevoort 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization".

Everything is batched over groups, with one H for each group: weights are
(groups, channels, d), H is (groups, d, d), scales are (groups, channels, 1), or
(groups, channels, d) for those that differ within a channel, as in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int8]


# What a channel's scale is tried at, as factors of the one that fits its largest weight.
CLIPPING = {4: tuple(np.linspace(0.5, 1.0, 11).tolist()), 8: (1.0,)}
# A scale below this share of the layer's largest would stand for weights that say nothing.
_LEAST_SHARE = 1e-6
# The scales that float16 holds in full.
_LEAST_BLOCK_SCALE = np.float32(2.0**-14)
_LARGEST_BLOCK_SCALE = np.float32(65280.0)
_BLOCK = 64
_ROUNDS = 3
# How many clipping factors of each channel are tried with errors passed on.
_SWEPT = 3
# A new scale must be this much better, so that nothing changes by rounding of floats alone.
_GAIN = 1e-4


class Rounded(NamedTuple):
    """Integers (groups, channels, d), and float32 scales, such that weights = integers * scales."""

    integers: Integers
    scales: NDArray[np.float32]

    @property
    def values(self) -> Floats:
        """The weights that these stand for."""
        values: Floats = self.integers.astype(np.float64) * self.scales
        return values


def limits(bits: int, *, symmetric: bool = False) -> tuple[int, int]:
    """The least and the largest integer; kernels need an int8 weight above -128."""
    largest = 2 ** (bits - 1) - 1
    return (-largest if bits == 8 or symmetric else -largest - 1), largest


def absmax_scales(
    weights: Floats, bits: int, *, least: Floats | None = None, block: int | None = None
) -> NDArray[np.float32]:
    """The scales at which each channel's (or block's) largest weight is the largest integer.

    (groups, channels, 1); with `block`, which divides d, (groups, channels, d). None is below
    `least`, (groups, channels, 1), or a millionth of the largest; where all are zero it is 1.
    """
    parts = weights if block is None else weights.reshape(*weights.shape[:2], -1, block)
    scales = np.max(np.abs(parts), axis=-1, keepdims=True) / limits(bits)[1]
    if block is not None:
        scales = np.broadcast_to(scales, parts.shape).reshape(weights.shape)
    floor = scales.max(initial=0.0) * _LEAST_SHARE or 1.0
    scales = np.maximum(scales, floor if least is None else np.maximum(floor, least))
    # Rounded up, so that the largest weight still fits.
    above: NDArray[np.float32] = np.nextafter(scales.astype(np.float32), np.float32(np.inf))
    return above


def block_scales_of(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest scales that a file has for blocks, of the same shape.

    A file has normal float16 numbers with the 7 bits of a bfloat16.
    """
    bits = scales.astype(np.float32).view(np.uint32)
    rounded_up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    short = (rounded_up & np.uint32(0xFFFF0000)).view(np.float32)
    within: NDArray[np.float32] = np.clip(short, _LEAST_BLOCK_SCALE, _LARGEST_BLOCK_SCALE)
    return within


def round_nearest(weights: Floats, scales: NDArray[np.float32], bits: int) -> Rounded:
    """Each weight, (groups, channels, d), rounded to the nearest integer of its scale."""
    return Rounded(_integers(weights, scales.astype(np.float64), bits), scales)


def quadratic_error(values: Floats, target: Floats, moment: Floats) -> Floats:
    """What each channel's output is off, squared and on average: (groups, channels)."""
    error = values - target
    errors: Floats = np.einsum("gcd,gcd->gc", error @ moment, error)
    return errors


def damp_moment(moment: Floats, rows: int) -> Floats:
    """`moment`, (groups, d, d), of `rows` samples, with more on its diagonal the fewer they are.

    A ridge toward the weights as they are: without it, directions that the samples hardly
    show would be free, and rounding would fit the samples alone.
    """
    d = moment.shape[-1]
    mean = np.trace(moment, axis1=1, axis2=2) / d
    mean = np.maximum(mean, mean.max(initial=0.0) * _LEAST_SHARE)
    ridge = (0.01 + d / rows) * np.where(mean > 0, mean, 1.0)
    damped: Floats = moment + ridge[:, None, None] * np.eye(d)
    return damped


def round_weights(
    target: Floats,
    moment: Floats,
    start: Rounded,
    bits: int,
    *,
    least: Floats | None = None,
    keep_scales: bool = False,
    symmetric: bool = False,
) -> Rounded:
    """Integers and scales of small quadratic error to `target`: never larger than `start` has.

    `moment` is positive definite (see `damp_moment`). `start` is any rounding of the weights; its
    form of scales is kept. Each channel tries the likeliest clipping factors; what is best is then
    improved, one weight and one scale at a time. No scale is below `least`; `keep_scales`: none
    differs from `start`'s; `symmetric`: no integer is the least of its bits, for a kernel
    that cannot take it.
    """
    span = limits(bits, symmetric=symmetric)
    sweep = _Sweep.of(moment, span)
    scored = _ScoredRounding(start, quadratic_error(start.values, target, moment))
    likely = [start.scales] if keep_scales else _likely_scales(target, moment, start, bits, least)
    best = scored
    for scales in likely:
        best = _better(best, sweep.swept(target, scales))
    search = _Search.of(best.rounded, target, moment)
    for _ in range(_ROUNDS):
        search.descend(span)
        if start.scales.shape[-1] == 1 and not keep_scales:
            search.rescale(least)
    improved = search.rounded
    return _better(
        scored, _ScoredRounding(improved, quadratic_error(improved.values, target, moment))
    ).rounded


class _ScoredRounding(NamedTuple):
    """A rounding, and the quadratic error of each channel, (groups, channels)."""

    rounded: Rounded
    errors: Floats


def _better(best: _ScoredRounding, other: _ScoredRounding) -> _ScoredRounding:
    """Channel by channel the one of the smaller error."""
    wins = other.errors < best.errors
    chosen = wins[:, :, None]
    return _ScoredRounding(
        Rounded(
            np.where(chosen, other.rounded.integers, best.rounded.integers),
            np.where(chosen, other.rounded.scales, best.rounded.scales),
        ),
        np.where(wins, other.errors, best.errors),
    )


def _integers(weights: Floats, scales: Floats, bits: int) -> Integers:
    return np.clip(np.rint(weights / scales), *limits(bits)).astype(np.int8)


def _likely_scales(
    target: Floats, moment: Floats, start: Rounded, bits: int, least: Floats | None
) -> Iterator[NDArray[np.float32]]:
    """For each channel the clipping factors that serve rounding to nearest best, the best first.

    A sweep with every factor would take most of the time, and one of these wins nearly always.
    """
    full = np.maximum(start.scales, _fitting(target, start, bits))
    power = np.diagonal(moment, axis1=1, axis2=2)[:, None, :]
    tried, errors = [], []
    for share in CLIPPING[bits]:
        scales = full * np.float32(share)
        if scales.shape[-1] > 1:
            scales = block_scales_of(scales)
        if least is not None:
            scales = np.maximum(scales, least.astype(np.float32))
        tried.append(scales)
        error = round_nearest(target, scales, bits).values - target
        errors.append(np.sum(power * error**2, axis=-1, keepdims=True))
    order = np.argsort(np.stack(errors), axis=0, kind="stable")
    for rank in range(min(_SWEPT, len(tried))):
        yield np.take_along_axis(np.stack(tried), order[rank : rank + 1], 0)[0]


def _fitting(target: Floats, start: Rounded, bits: int) -> NDArray[np.float32]:
    if start.scales.shape[-1] > 1:
        return start.scales
    fitting = np.max(np.abs(target), axis=-1, keepdims=True) / limits(bits)[1]
    within: NDArray[np.float32] = np.minimum(fitting, 1.25 * start.scales).astype(np.float32)
    return within


class _Sweep(NamedTuple):
    """What rounding in order needs: the order of columns, and the Cholesky factor in it."""

    order: NDArray[np.intp]
    factor: NDArray[np.float32]
    span: tuple[int, int]

    @classmethod
    def of(cls, moment: Floats, span: tuple[int, int]) -> _Sweep:
        """The inputs of most power go first, while there are most others to make up for them."""
        order = np.argsort(-np.diagonal(moment, axis1=1, axis2=2), axis=1, kind="stable")
        moment = np.take_along_axis(moment, order[:, :, None], 1)
        moment = np.take_along_axis(moment, order[:, None, :], 2)
        factor = np.swapaxes(np.linalg.cholesky(np.linalg.inv(moment)), 1, 2)
        return cls(order, factor.astype(np.float32), span)

    def swept(self, target: Floats, scales: NDArray[np.float32]) -> _ScoredRounding:
        """Column by column to the nearest integer, each error passed on to those that follow."""
        order = self.order[:, None, :]
        left = np.take_along_axis(target, order, 2).astype(np.float32)
        steps = np.take_along_axis(np.broadcast_to(scales, target.shape), order, 2)
        integers = np.empty(target.shape, np.int8)
        total = np.zeros(target.shape[:2])
        d = target.shape[-1]
        for first in range(0, d, _BLOCK):
            last = min(first + _BLOCK, d)
            errors = self._block(left, steps, integers, first, last)
            left[:, :, last:] -= errors @ self.factor[:, first:last, last:]
            # The quadratic error is the sum of these squares.
            total += np.sum(errors**2, axis=-1, dtype=np.float64)
        swept = np.empty_like(integers)
        np.put_along_axis(swept, np.broadcast_to(order, target.shape), integers, 2)
        return _ScoredRounding(Rounded(swept, scales), total)

    def _block(
        self,
        left: NDArray[np.float32],
        steps: NDArray[np.float32],
        integers: Integers,
        first: int,
        last: int,
    ) -> NDArray[np.float32]:
        low, high = self.span
        errors = np.empty((*left.shape[:2], last - first), np.float32)
        for j in range(first, last):
            step = steps[:, :, j]
            number = np.clip(np.rint(left[:, :, j] / step), low, high)
            integers[:, :, j] = number
            error = (left[:, :, j] - number * step) / self.factor[:, None, j, j]
            errors[:, :, j - first] = error
            passed = error[:, :, None] * self.factor[:, None, j, j + 1 : last]
            left[:, :, j + 1 : last] -= passed
        return errors


@dataclass
class _Search:
    """A rounding that is improved one weight and one scale at a time.

    `pull` is its values times the moment, and `goal` the target times the moment, both (groups,
    channels, d): with them no step takes a product of matrices.
    """

    integers: Floats
    scales: Floats
    pull: Floats
    goal: Floats
    target: Floats
    moment: Floats

    @classmethod
    def of(cls, rounded: Rounded, target: Floats, moment: Floats) -> _Search:
        scales = rounded.scales.astype(np.float64)
        integers = rounded.integers.astype(np.float64)
        return cls(integers, scales, rounded.values @ moment, target @ moment, target, moment)

    @property
    def rounded(self) -> Rounded:
        return Rounded(self.integers.astype(np.int8), self.scales.astype(np.float32))

    def descend(self, span: tuple[int, int]) -> None:
        """One pass over all weights, each set to its best integer while the others stay."""
        scales = np.broadcast_to(self.scales, self.integers.shape)
        slope = self.pull - self.goal
        diagonal = np.diagonal(self.moment, axis1=1, axis2=2)
        for j in range(self.integers.shape[-1]):
            step = scales[:, :, j]
            exact = self.integers[:, :, j] - slope[:, :, j] / (diagonal[:, None, j] * step)
            number = np.clip(np.rint(exact), *span)
            change = (number - self.integers[:, :, j]) * step
            groups, channels = np.nonzero(change)
            if len(groups):
                slope[groups, channels] += change[groups, channels, None] * self.moment[groups, j]
                self.integers[:, :, j] = number
        self.pull = slope + self.goal

    def rescale(self, least: Floats | None) -> None:
        """The same integers at the scale of least error, a parabola's lowest point."""
        power = np.sum(self.integers * self.pull, axis=-1, keepdims=True) / self.scales
        fit = np.sum(self.integers * self.goal, axis=-1, keepdims=True)
        constant = np.sum(self.target * self.goal, axis=-1, keepdims=True)
        sound = (power > 0) & (fit > 0)
        scales = np.where(sound, fit / np.where(sound, power, 1.0), self.scales)
        if least is not None:
            scales = np.maximum(scales, least)
        scales = scales.astype(np.float32).astype(np.float64)
        before, after = (s**2 * power - 2 * s * fit + constant for s in (self.scales, scales))
        scales = np.where(after < before * (1 - _GAIN), scales, self.scales)
        self.pull *= scales / self.scales
        self.scales = scales
