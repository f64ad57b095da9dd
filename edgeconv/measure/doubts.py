"""Signs that the trained model is not given what it was trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.nouns import Measurement, TrainingRecord

# Below this many times what guessing the commonest class gives, a model is next to useless.
_NEAR_CHANCE = 1.5
# A test set is rarely this much harder than another of the same kind.
_FAR_BELOW = 0.1


def accuracy_doubts(
    baseline: Measurement | None,
    labels: NDArray[np.int64] | None,
    training: TrainingRecord | None,
) -> tuple[str, ...]:
    """What to say of a trained model that is far worse here than it should be."""
    if baseline is None or baseline.accuracy is None or labels is None:
        return ()
    accuracy = baseline.accuracy.value
    stated = (training.test_metrics if training else {}).get("accuracy")
    ask = "ask `edgeconv doctor MODEL DATA` which preprocessing the model was trained with"
    if stated is not None and accuracy < stated - _FAR_BELOW:
        return (f"the trained model has {accuracy:.3f} here and {stated:.3f} in its record: {ask}",)
    commonest = _commonest_share(labels)
    if accuracy < min(_NEAR_CHANCE * commonest, (1 + commonest) / 2):
        return (
            f"the trained model has {accuracy:.3f}, and always guessing the commonest label "
            f"{commonest:.3f}: {ask}",
        )
    return ()


def _commonest_share(labels: NDArray[np.int64]) -> float:
    import numpy as np

    return float(np.bincount(labels).max() / len(labels)) if len(labels) else 1.0
