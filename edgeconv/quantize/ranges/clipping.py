"""Activation ranges narrower than from minimum to maximum, chosen by a histogram.

A few values far out make the step of all others coarse. Each method gives them up by another
measure: percentile by their number, MSE by the squared error that remains, KL by how much of the
distribution is lost.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from edgeconv.quantize.ranges.histograms import Histogram

Clipping = Literal["percentile", "mse", "kl"]

# With fewer, what lies far out is not rare but unknown, and a method that cuts it off guesses.
MIN_SAMPLES: dict[Clipping, int] = {"percentile": 32, "mse": 32, "kl": 32}
# A common choice. With 0.999 a trained network can lose all of its accuracy.
PERCENTILE = 0.99999
# The most that the entropy method may cut off, of all values but 0.
_MOST_CUT = 0.001
# Where integers have room for all of a range there is nothing to gain by losing its ends.
_BITS_WITH_ROOM = 16
# How far an end is moved at most: to 1/120 of where it was.
_FRACTIONS = 0.92 ** np.arange(1, 58)
_ROUNDS = 2


def clip_ranges(
    method: Clipping, histograms: Mapping[str, Histogram], ranges: Mapping[str, Any], *, bits: int
) -> dict[str, Any]:
    """`ranges` (of `activation_ranges`) with each that has a histogram narrowed by the method.

    A range is never widened, and one with 0 in it keeps that. At 16 bits all stay as they are.
    """
    narrow = dict(ranges)
    if bits >= _BITS_WITH_ROOM:
        return narrow
    for name, histogram in histograms.items():
        if name not in ranges or not histogram.counts.any():
            continue
        low, high = clip_range(method, histogram, bits=bits)
        if low < high:
            limits = ranges[name]
            narrow[name] = {
                **limits,
                "min": np.maximum(limits["min"], low),
                "max": np.minimum(limits["max"], high),
            }
    return narrow


def clip_range(method: Clipping, histogram: Histogram, *, bits: int) -> tuple[float, float]:
    """The ends that a method chooses for one tensor."""
    if method == "percentile":
        return percentile_ends(histogram, PERCENTILE)
    if method == "mse":
        return _searched(histogram, lambda low, high: squared_error(histogram, low, high, bits))
    return _searched(histogram, lambda low, high: divergence(histogram, low, high, bits))


def percentile_ends(histogram: Histogram, kept_share: float) -> tuple[float, float]:
    """Ends between which lie at least `kept_share` (a fraction) of the values.

    Half of what is cut off is cut off at each end; all of it at the one that is not 0 where
    no value has the other sign. A common rule, compared with others by Wu et al. 2020
    ("Integer Quantization for Deep Learning Inference: Principles and Empirical
    Evaluation", section 4).
    """
    low, high = histogram.low, histogram.high
    two_sided = low < 0 < high
    allowed = (1 - kept_share) * float(histogram.counts.sum()) / (2 if two_sided else 1)
    centers = histogram.centers
    if high > 0:
        high = max(_without_tail(histogram.counts[::-1], centers[::-1], allowed, high), 0.0)
    if low < 0:
        low = min(_without_tail(histogram.counts, centers, allowed, low), 0.0)
    return low, high


def _without_tail(
    counts: NDArray[np.int64], centers: NDArray[np.float64], allowed: float, end: float
) -> float:
    """Where a range ends that leaves out at most `allowed` values from the first bin on."""
    counted = np.cumsum(counts)
    first = int(np.searchsorted(counted, allowed, side="right"))
    return float(centers[first]) if first and counted[first - 1] else end


def squared_error(histogram: Histogram, low: float, high: float, bits: int) -> float:
    """The mean squared error of the values, quantized affinely to `bits` between the ends.

    Rounding and clipping together, as in Sung et al. 2015 ("Resiliency of Deep Neural Networks
    under Quantization") and Choukroun et al. 2019 ("Low-bit Quantization of Neural
    Networks for Efficient Inference", section 3). Where Banner et al. 2019 ("Post training
    4-bit quantization of convolutional networks for rapid-deployment", section 3) assume a
    Laplace or normal density and a mean rounding error, here the error is integrated
    exactly over the histogram, each bin an even density; but 0, which the integers express
    exactly, has no error.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    levels = 2**bits - 1
    scale = (high - low) / levels
    bottom = -round(-low / scale) * scale
    top = bottom + levels * scale
    error = np.diff(_integrated_error(histogram.edges, bottom, top, scale)) / histogram.step
    if histogram.origin == 0:
        error[histogram.origin_bin] = 0.0
    return float(histogram.counts @ error) / float(histogram.counts.sum())


def _integrated_error(
    values: NDArray[np.float64], bottom: float, top: float, scale: float
) -> NDArray[np.float64]:
    """The integral of the squared error from 0 to each value; the grid has 0 on it."""
    inside = np.clip(values, bottom, top)
    steps = inside / scale
    nearest = np.rint(steps)
    rounding = scale**3 * (nearest / 12 + _cubed(steps - nearest) / 3)
    return rounding + _cubed(values - inside) / 3


def _cubed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values * values * values


def divergence(histogram: Histogram, low: float, high: float, bits: int) -> float:
    """The Kullback-Leibler divergence of the clipped values from their quantized distribution.

    After Migacz 2017 ("8-bit Inference with TensorRT", GTC, slides 28 to 38), with 2**bits
    levels between the two ends in place of 128 of the magnitudes. What is clipped is
    added to the ends of the one distribution and not to the other, or clipping would cost
    nothing; each level is spread evenly over its bins with values, so that an empty
    bin stays empty in both. The bin of 0, which has no error, counts no more than the fuller
    of its neighbors. Infinite where something is cut off at an end that has no values,
    and beyond `_MOST_CUT`: values that recur, as over the padding of an input, are spikes in the
    distribution, and to keep their form the measure would give up a fifth of all others.
    """
    counts = _without_zeros(histogram)
    first, last = np.searchsorted(histogram.centers, (min(low, 0.0), max(high, 0.0)))
    first, last = int(first), min(int(last), len(counts) - 1)
    inside = counts[first : last + 1]
    below, above = counts[:first].sum(), counts[last + 1 :].sum()
    if (below and not inside[0]) or (above and not inside[-1]):
        return math.inf
    if below + above > _MOST_CUT * counts.sum():
        return math.inf
    clipped_counts = inside.copy()
    clipped_counts[0] += below
    clipped_counts[-1] += above
    levels = min(2**bits, len(inside))
    level = np.arange(len(inside)) * levels // len(inside)
    used = inside > 0
    even = np.bincount(level, inside) / np.maximum(np.bincount(level, used), 1)
    p = clipped_counts[used] / clipped_counts.sum()
    q = even[level[used]] / inside.sum()
    return float(p @ np.log(p / q))


def _without_zeros(histogram: Histogram) -> NDArray[np.float64]:
    counts = histogram.counts.astype(np.float64)
    if histogram.origin == 0:
        at = histogram.origin_bin
        neighbors = [counts[i] for i in (at - 1, at + 1) if 0 <= i < len(counts)]
        counts[at] = min(counts[at], max(neighbors))
    return counts


def _searched(histogram: Histogram, loss: Callable[[float, float], float]) -> tuple[float, float]:
    """The ends of the least loss: one is moved while the other stays, in turn.

    The loss is not convex, so all candidates of an end are tried. Both ends begin where the
    true ones are, and a tie leaves them.
    """
    low, high = histogram.low, histogram.high
    lows, highs = _candidates(histogram, low), _candidates(histogram, high)
    best = loss(low, high)
    for _ in range(_ROUNDS):
        before = (low, high)
        if high > 0:
            best, high = min([(best, high)] + [(loss(low, end), end) for end in highs], key=_first)
        if low < 0:
            best, low = min([(best, low)] + [(loss(end, high), end) for end in lows], key=_first)
        if (low, high) == before:
            break
    return low, high


def _first(pair: tuple[float, float]) -> float:
    return pair[0]


def _candidates(histogram: Histogram, end: float) -> list[float]:
    """Nearer ends that values were seen at, in equal ratios; the end itself is the first."""
    values = histogram.centers[histogram.counts > 0]
    side = np.sort(np.abs(values[np.sign(values) == np.sign(end)]))
    at = np.searchsorted(side, abs(end) * _FRACTIONS, side="right") - 1
    nearer = side[np.unique(at[at >= 0])[::-1]]
    return [end, *(float(value) for value in np.copysign(nearer, end))]
