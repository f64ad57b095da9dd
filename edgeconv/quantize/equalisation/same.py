"""Whether a changed float graph still gives what it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.quantize.calibrate import Feed

# Of an output's largest magnitude; float32 resolves a thousandth of that.
TOLERANCE = 1e-4


def same_outputs(before: bytes, after: bytes, feeds: Mapping[str, Feed], *, threads: int) -> bool:
    """Whether both models give the same for the first batch of each signature.

    Every output must be within `TOLERANCE` of its largest magnitude, and not finite in the
    same places.
    """
    from ai_edge_litert.interpreter import Interpreter

    models = [Interpreter(model_content=one, num_threads=threads) for one in (before, after)]
    for key, feed in feeds.items():
        batch = next(iter(feed), None)
        if batch is not None:
            old, new = (model.get_signature_runner(key)(**batch) for model in models)
            if not all(_are_close(old[name], new[name]) for name in old):
                return False
    return True


def _are_close(old: Any, new: Any) -> bool:
    import numpy as np

    finite = np.isfinite(old)
    if old.shape != new.shape or not np.array_equal(finite, np.isfinite(new)):
        return False
    expected = np.where(finite, old, 0).astype(np.float64)
    error = np.abs(np.where(finite, new, 0) - expected)
    return bool(error.max(initial=0.0) <= TOLERANCE * np.abs(expected).max(initial=0.0))
