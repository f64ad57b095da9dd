"""When other kernels answer as the model in float32 on a processor does."""

from __future__ import annotations

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
