"""When the answers of a GPU's kernels are those of the model in float32 on a processor."""

from __future__ import annotations

# Of the samples, those that must have the class that float32 gives them.
LEAST_AGREEMENT = 0.99
# Twice the error, where that can be seen.
MORE_DB, CLOSE_DB = 6.0, 60.0


def is_another(there_db: float, here_db: float) -> bool:
    """Whether kernels compute something else: an SNR there, and that of others for the same file.

    Kernels round differently, which costs next to nothing.
    """
    return there_db < min(here_db - MORE_DB, CLOSE_DB)
