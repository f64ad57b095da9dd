"""Whether a model gives samples of a batch the answers that it gives each of them alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
