"""Factors that equalize the ranges of a channel's weights in two layers.

M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-Free Quantization Through Weight
Equalization and Bias Correction" (ICCV 2019), section 4.1.
"""

import numpy as np
from numpy.typing import NDArray


def balancing_logarithms(
    first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The logarithm of the factor of each channel, sqrt(r1 / r2), equation 11: float64 [channels].

    `first` and `second`, float64 [channels]: the logarithms of the largest weights that produce
    and that consume the channel; -inf where all are zero, for which the factor is 1.
    """
    alive = np.isfinite(first) & np.isfinite(second)
    ratios: NDArray[np.float64] = np.subtract(first, second, out=np.zeros_like(first), where=alive)
    return ratios / 2
