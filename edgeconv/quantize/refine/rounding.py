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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int8]

# What a channel's scale is tried at, as factors of the one that fits its largest weight.
CLIPPING = {4: tuple(np.linspace(0.5, 1.0, 11).tolist()), 8: (0.9, 0.95, 1.0)}
# A scale below this share of the layer's largest would stand for weights that say nothing.
_LEAST_SHARE = 1e-6
# Of those that float16 holds in full.
_LEAST_BLOCK_SCALE = np.float32(2.0**-14)
_LARGEST_BLOCK_SCALE = np.float32(65280.0)
_BLOCK = 64
_ROUNDS = 3
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
    form of scales is kept. Each channel tries every clipping factor; what is best is then
    improved, one weight and one scale at a time. No scale is below `least`; `keep_scales`: none
    differs from those of `start`; `symmetric`: no integer is the least of its bits, for a kernel
    that cannot take it.
    """
    best = start
    span = limits(bits, symmetric=symmetric)
    sweep = _Sweep.of(moment, span)
    tried = [] if keep_scales else _clipped(target, start, bits, least)
    for scales in (*tried, start.scales):
        best = _better(best, Rounded(sweep.swept(target, scales), scales), target, moment)
    for _ in range(_ROUNDS):
        best = _better(best, _descended(best, target, moment, span), target, moment)
        if best.scales.shape[-1] == 1 and not keep_scales:
            rescaled = _rescaled(best, target, moment, least)
            best = _better(best, rescaled, target, moment, gain=_GAIN)
    return best


def _integers(weights: Floats, scales: Floats, bits: int) -> Integers:
    return np.clip(np.rint(weights / scales), *limits(bits)).astype(np.int8)


def _clipped(
    target: Floats, start: Rounded, bits: int, least: Floats | None
) -> Iterator[NDArray[np.float32]]:
    """The scales to try: each clipping factor of what fits both the weights and the target."""
    full = np.maximum(start.scales, _fitting(target, start, bits))
    for share in CLIPPING[bits]:
        scales = full * np.float32(share)
        if scales.shape[-1] > 1:
            scales = block_scales_of(scales)
        yield scales if least is None else np.maximum(scales, least.astype(np.float32))


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

    def swept(self, target: Floats, scales: NDArray[np.float32]) -> Integers:
        """Column by column to the nearest integer, each error passed on to those that follow."""
        order = self.order[:, None, :]
        left = np.take_along_axis(target, order, 2).astype(np.float32)
        steps = np.take_along_axis(np.broadcast_to(scales, target.shape), order, 2)
        integers = np.empty(target.shape, np.int8)
        d = target.shape[-1]
        for first in range(0, d, _BLOCK):
            last = min(first + _BLOCK, d)
            errors = self._block(left, steps, integers, first, last)
            left[:, :, last:] -= errors @ self.factor[:, first:last, last:]
        swept = np.empty_like(integers)
        np.put_along_axis(swept, np.broadcast_to(order, target.shape), integers, 2)
        return swept

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


def _better(
    best: Rounded, other: Rounded, target: Floats, moment: Floats, *, gain: float = 0.0
) -> Rounded:
    """Channel by channel the one of the smaller error; `best` unless the gain is large enough."""
    errors = [quadratic_error(each.values, target, moment) for each in (best, other)]
    wins = (errors[1] < errors[0] * (1 - gain))[:, :, None]
    return Rounded(
        np.where(wins, other.integers, best.integers), np.where(wins, other.scales, best.scales)
    )


def _descended(best: Rounded, target: Floats, moment: Floats, span: tuple[int, int]) -> Rounded:
    """One pass over all weights, each set to its best integer while the others stay."""
    scales = np.broadcast_to(best.scales.astype(np.float64), target.shape)
    integers = best.integers.copy()
    slope = (best.values - target) @ moment
    diagonal = np.diagonal(moment, axis1=1, axis2=2)
    for j in range(target.shape[-1]):
        step = scales[:, :, j]
        exact = integers[:, :, j] - slope[:, :, j] / (diagonal[:, None, j] * step)
        number = np.clip(np.rint(exact), *span)
        change = (number - integers[:, :, j]) * step
        groups, channels = np.nonzero(change)
        slope[groups, channels] += change[groups, channels, None] * moment[groups, j]
        integers[:, :, j] = number
    return Rounded(integers, best.scales)


def _rescaled(best: Rounded, target: Floats, moment: Floats, least: Floats | None) -> Rounded:
    """The same integers at the scale of least error: a parabola's lowest point."""
    numbers = best.integers.astype(np.float64)
    weighted = numbers @ moment
    power = np.sum(weighted * numbers, axis=-1, keepdims=True)
    fit = np.sum(weighted * target, axis=-1, keepdims=True)
    sound = (power > 0) & (fit > 0)
    scales = np.where(sound, fit / np.where(sound, power, 1.0), best.scales)
    if least is not None:
        scales = np.maximum(scales, least)
    return Rounded(best.integers, scales.astype(np.float32))
