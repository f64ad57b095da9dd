"""What the answers of a model to samples say about these: the same for all, saturated, at chance.

A model that was trained gives samples like those of its training answers that differ, and of which
it is not certain beyond all measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Fewer samples have the same answer by chance, or too few labels for a verdict.
_LEAST_SAMPLES, _LEAST_LABELS = 16, 50
# Of its root mean square, that an output varies by between samples.
_LEAST_VARIATION = 0.003
# A probability that no training gets to: its logarithm has no gradient left in float32.
_NEGLIGIBLE = 1e-12
_SATURATED_SHARE = 0.5
# Scores of so many classes at least, whose probabilities differ by a factor of 1e22.
_LEAST_CLASSES, _FAR_APART = 3, 50.0
# How much more answers tell of samples in a smaller scale that fits, of all they could. To samples
# that fit as they are, those of 12 models told as much at most.
_TELLS_MORE = 0.1
_PERMUTATIONS = 200
_CHANCE = 0.05
_SEED = 20261122


def is_saturated(output: Array) -> bool:
    """Whether most of the probabilities, (samples, classes) or (samples, 1), are exactly 0 or 1."""
    if not _are_probabilities(output) or len(output) < _LEAST_SAMPLES:
        return False
    if output.shape[1] == 1:
        return _share_of_limits(output) > _SATURATED_SHARE
    second = np.sort(output.astype(np.float64), axis=1)[:, -2]
    return bool((second < _NEGLIGIBLE).mean() > _SATURATED_SHARE)


def is_overdriven(output: Array) -> bool:
    """Whether an output, (samples, ...), looks like that to inputs of far too large a scale.

    Probabilities of several labels or of each pixel are exactly 0 and 1, or scores of classes,
    (samples, classes), so far apart that no probability but one is left of them.
    """
    if output.dtype.kind != "f" or output.ndim < 2 or len(output) < _LEAST_SAMPLES:
        return False
    if output.min() >= 0 and output.max() <= 1:
        return bool((output == 1).any()) and _share_of_limits(output) > _SATURATED_SHARE
    if output.ndim > 2 or output.shape[1] < _LEAST_CLASSES or output.min() >= 0:
        return False
    second, first = np.sort(output.astype(np.float64), axis=1)[:, -2:].T
    return bool((first - second > _FAR_APART).mean() > _SATURATED_SHARE)


def _share_of_limits(output: Array) -> float:
    return float(((output < _NEGLIGIBLE) | (output == 1)).mean())


def _are_probabilities(output: Array) -> bool:
    """Whether an output is of classes that add up to 1, or of one class."""
    if output.ndim != 2 or output.dtype.kind != "f" or not output.size:
        return False
    if not (output.min() >= 0 and output.max() <= 1):
        return False
    return output.shape[1] == 1 or bool(np.allclose(output.sum(axis=1), 1, atol=1e-3))


def variation(output: Array) -> float:
    """How much an output, (samples, ...), differs between samples: 0 for the same in all.

    It is the largest standard deviation of a value, of the root mean square of all. NaN if any is.
    """
    rows = output.reshape(len(output), -1).astype(np.float64)
    scale = float(np.sqrt(np.mean(rows**2)))
    return float(rows.std(axis=0).max()) / scale if scale else 0.0


def information(output: Array) -> float:
    """What the answers, (samples, classes), say of the samples: 0 for nothing, 1 for all they can.

    It is the mutual information of sample and class, of the logarithm of the number of classes, as
    J. Bridle et al. (1991) trained by. Scores become probabilities by softmax. NaN if any is not
    finite; 0 for what has no classes.
    """
    if output.ndim != 2 or output.shape[1] < 2 or output.dtype.kind != "f":
        return 0.0
    values = output.astype(np.float64)
    if not _are_probabilities(output):
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    mean = _entropy(values.mean(axis=0, keepdims=True))
    return (mean - _entropy(values)) / float(np.log(values.shape[1]))


def more_telling(
    outputs: Mapping[str, Array], others: Iterable[tuple[str, Mapping[str, Array]]]
) -> tuple[str, tuple[float, float]]:
    """Which of other samples, by name, a model's outputs tell clearly more of; "" for none.

    With it comes the information in `outputs` and in the best of the `others`, all of them floats
    (samples, classes).
    """
    own, best, better = _most_information(outputs), 0.0, ""
    for name, answers in others:
        amount = _most_information(answers)
        if amount > best:
            best, better = amount, name
    return (better if best - own >= _TELLS_MORE else ""), (own, best)


def _most_information(outputs: Mapping[str, Array]) -> float:
    finite = (output for output in outputs.values() if np.isfinite(output).all())
    return max(map(information, finite), default=0.0)


def _entropy(probabilities: Array) -> float:
    """The mean entropy of (samples, classes), in nats."""
    logarithms = np.log(np.maximum(probabilities, _NEGLIGIBLE))
    return float(-(probabilities * logarithms).sum(axis=1).mean())


def answer_remarks(outputs: Mapping[str, Array]) -> Iterator[str]:
    """What is strange about a model's outputs, (samples, ...) by name, a sentence each."""
    for name, output in outputs.items():
        if output.ndim < 2 or output.dtype.kind != "f" or len(output) < _LEAST_SAMPLES:
            continue
        if not np.isfinite(output).all():
            continue
        if variation(output) <= _LEAST_VARIATION:
            yield f"the float model's output {name!r} hardly differs between them"
        elif (
            _are_probabilities(output) and output.shape[1] > 1 and not np.ptp(output.argmax(axis=1))
        ):
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
