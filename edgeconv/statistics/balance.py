"""Factors that make the ranges of a channel's weights in two layers alike.

M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-Free Quantization Through Weight
Equalization and Bias Correction" (ICCV 2019), section 4.1. The layers of a graph and those of a
Keras model are equalized by the same factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def balancing_logarithms(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The logarithm of the factor of each channel, (channels,): sqrt(r1 / r2), equation 11.

    `first` has the logarithm of the largest weight that makes the channel, `second` that of the
    largest that takes it, -inf where all are zero; nothing is gained there, and the factor is 1.
    """
    alive = np.isfinite(first) & np.isfinite(second)
    ratios: NDArray[np.float64] = np.subtract(first, second, out=np.zeros_like(first), where=alive)
    return ratios / 2
