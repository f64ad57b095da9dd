"""What the answers of a model to samples say about these: the same for all, saturated, at chance.

A model that was trained gives samples like those of its training answers that differ, and of which
it is not certain beyond all measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Fewer samples have the same answer by chance, or too few labels for a verdict.
_LEAST_SAMPLES, _LEAST_LABELS = 16, 50
# Of its root mean square, that an output varies by between samples.
_LEAST_VARIATION = 0.003
# A probability that no training gets to: its logarithm has no gradient left in float32.
_NEGLIGIBLE = 1e-12
_SATURATED_SHARE = 0.5
_PERMUTATIONS = 200
_CHANCE = 0.05
_SEED = 20261122


def is_saturated(output: Array) -> bool:
    """Whether most of the probabilities, (samples, classes) or (samples, 1), are exactly 0 or 1."""
    if not _are_probabilities(output) or len(output) < _LEAST_SAMPLES:
        return False
    values = output.astype(np.float64)
    if values.shape[1] == 1:
        certain = (values < _NEGLIGIBLE) | (values == 1)
        return bool(certain.mean() > _SATURATED_SHARE)
    second = np.sort(values, axis=1)[:, -2]
    return bool((second < _NEGLIGIBLE).mean() > _SATURATED_SHARE)


def _are_probabilities(output: Array) -> bool:
    """Whether an output is of classes that add up to 1, or of one class."""
    if output.ndim != 2 or output.dtype.kind != "f" or not output.size:
        return False
    if not (output.min() >= 0 and output.max() <= 1):
        return False
    return output.shape[1] == 1 or bool(np.allclose(output.sum(axis=1), 1, atol=1e-3))


def answer_remarks(outputs: Mapping[str, Array]) -> Iterator[str]:
    """What is strange about a model's outputs, (samples, ...) by name, a sentence each."""
    for name, output in outputs.items():
        if output.ndim < 2 or output.dtype.kind != "f" or len(output) < _LEAST_SAMPLES:
            continue
        rows = output.reshape(len(output), -1).astype(np.float64)
        if not np.isfinite(rows).all():
            continue
        scale = float(np.sqrt(np.mean(rows**2)))
        if float(rows.std(axis=0).max()) <= _LEAST_VARIATION * scale:
            yield f"the float model's output {name!r} hardly differs between them"
        elif _are_probabilities(output) and rows.shape[1] > 1 and not np.ptp(rows.argmax(axis=1)):
            yield f"the float model gives all of them the same answer in {name!r}"
        if is_saturated(output):
            yield f"the float model's probabilities in {name!r} are exactly 0 and 1"


def is_at_chance(output: Array, labels: Array | None) -> bool:
    """Whether the largest of the outputs does not depend on the labels.

    `output` is (samples, classes), the classes however numbered, and `labels` (samples,). It is
    compared with what permuted labels give.
    """
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return False
    is_classes = output.ndim == 2 and output.shape[1] > 1
    if not is_classes or len(labels) != len(output) or len(labels) < _LEAST_LABELS:
        return False
    answers = np.unique(output.argmax(axis=1), return_inverse=True)[1]
    classes = np.unique(labels, return_inverse=True)[1]
    if classes.max() == 0 or answers.max() == 0:
        return False
    rng = np.random.default_rng(_SEED)
    actual = _dependence(answers, classes)
    permuted = [_dependence(answers, rng.permutation(classes)) for _ in range(_PERMUTATIONS)]
    return bool(np.mean(np.array(permuted) >= actual) > _CHANCE)


def _dependence(answers: Array, classes: Array) -> float:
    counts = np.zeros((answers.max() + 1, classes.max() + 1))
    np.add.at(counts, (answers, classes), 1)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True)
    return float((counts**2 / expected).sum())
