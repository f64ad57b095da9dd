"""Signs that a model is not measured on what it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.measure.metrics.accuracy import commonest_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import EvaluationSet
    from edgeconv.types import Artifact, Measurement, TrainingRecord

# Below this many times what guessing the commonest class gives, a model is next to useless.
_NEAR_CHANCE = 1.5
# A test set is rarely this much harder than another of the same kind.
_FAR_BELOW = 0.1
# What Keras calls the share of samples whose best class is the label.
_TOP1 = ("accuracy", "sparse_categorical_accuracy", "categorical_accuracy")


def measurement_warnings(
    baseline: Measurement | None,
    samples: EvaluationSet,
    training: TrainingRecord | None,
    artifacts: Sequence[Artifact],
) -> tuple[str, ...]:
    """All signs of that in what was measured on these samples."""
    return (
        *accuracy_warnings(baseline, samples.labels, training),
        *training_data_warnings(artifacts, samples.text),
    )


def accuracy_warnings(
    baseline: Measurement | None,
    labels: NDArray[np.generic] | None,
    training: TrainingRecord | None,
) -> tuple[str, ...]:
    """A warning of a trained model that is far worse here than it should be."""
    if baseline is None or labels is None:
        return ()
    if baseline.accuracy is None or baseline.accuracy.metric != "top1":
        return ()
    accuracy = baseline.accuracy.value
    stated = _stated(training) if training else None
    advice = "`edgeconv doctor MODEL DATA` finds which preprocessing it was trained with"
    if stated is not None and accuracy < stated - _FAR_BELOW:
        return (
            f"the trained model has {accuracy:.3f} here and {stated:.3f} in its record: {advice}",
        )
    commonest = commonest_share(labels)
    if accuracy < min(_NEAR_CHANCE * commonest, (1 + commonest) / 2):
        return (
            f"the trained model has {accuracy:.3f}, and always guessing the commonest label "
            f"{commonest:.3f}: {advice}",
        )
    return ()


def training_data_warnings(artifacts: Sequence[Artifact], source: str) -> tuple[str, ...]:
    """Warnings of artifacts that were trained on the SOURCE that they are measured on."""
    return tuple(
        f"{artifact.recipe.name} was trained on {source}, the samples it is measured on here: "
        "measure it on others"
        for artifact in artifacts
        if artifact.qat is not None and artifact.qat.source == source
    )


def _stated(training: TrainingRecord) -> float | None:
    """The top-1 accuracy on the test samples in a record."""
    return next((training.test_metrics[n] for n in _TOP1 if n in training.test_metrics), None)
