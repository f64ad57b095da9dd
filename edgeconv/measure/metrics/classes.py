"""Metrics of outputs and labels: of classes, of numbers, of tokens.

Scores of classes are (n, classes), or (n, 1) and (n,) for two classes: the scores of class 1,
as a sigmoid or a logit gives them. Labels are class numbers from 0, (n,) or (n, 1), zeros and ones
of any dtype, or one-hot rows. Scores of tokens are
(n, positions, vocabulary), labels (n, positions): positions with a label below 0 do not count,
and a sample of more positions weighs more.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from edgeconv.data.checks import class_numbers
from edgeconv.measure.metrics.scores import (
    Array,
    Floats,
    Metric,
    Scored,
    blocks,
    check_count,
    no_fit,
    ratio_of_sums,
)
from edgeconv.types.errors import InputRefused

_TOP = 5
# For probabilities in half precision.
_ROUNDING = 0.01


def classes_of(scores: Array, labels: Array) -> tuple[int, Array]:
    """The number of classes, and of each sample, (n,). Raises `InputRefused` for unfit labels."""
    need = "class metrics need one score per class"
    check_count(scores, labels, need)
    if scores.ndim > 2 or 0 in scores.shape[1:]:
        raise no_fit(scores, labels, need)
    numbers = class_numbers(labels)
    if numbers is None:
        raise InputRefused(
            f"labels of {labels.dtype} {labels.shape} are not class numbers",
            hint="--metric mae or mse for numbers, masked_accuracy or perplexity for tokens",
        )
    classes = 2 if scores.ndim == 1 else max(2, scores.shape[1])
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < classes:
        beyond = numbers.max() if numbers.max() >= classes else numbers.min()
        raise InputRefused(
            f"a label is {beyond}, and the model has {classes} classes",
            hint="labels count from 0; are they for another model, or do they start at 1?",
        )
    return classes, numbers


def predicted(scores: Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The class of each sample, int64 (n,), -1 where a score is not finite; ties go to the lowest.

    A single score belongs to class 1: a probability over 0.5, or a logit over 0.
    """
    classes = np.empty(len(scores), np.int64)
    is_lone = scores.ndim == 1 or scores.shape[1] == 1
    threshold = _threshold(scores) if is_lone else 0.0
    for rows, block in blocks(scores):
        flat = np.asarray(block, np.float64).reshape(len(block), -1)
        best = flat[:, 0] > threshold if is_lone else flat.argmax(axis=1)
        classes[rows] = np.where(np.isfinite(flat).all(axis=1), best, -1)
    return classes


def _threshold(scores: Array) -> float:
    within = all(
        bool(((block >= 0) & (block <= 1 + _ROUNDING) | np.isnan(block)).all())
        for _, block in blocks(scores)
    )
    return 0.5 if within else 0.0


def top1(scores: Array, labels: Array) -> Scored:
    """Whether the class with the highest score is the label: 1 or 0, (n,)."""
    _, labels = classes_of(scores, labels)
    classes = predicted(scores)
    return Scored((classes == labels).astype(np.float64), classes)


def top5(scores: Array, labels: Array) -> Scored:
    """Whether the label is among the five classes with the highest scores: 1 or 0, (n,)."""
    classes, labels = classes_of(scores, labels)
    if classes <= _TOP:
        raise InputRefused(
            f"the model has {classes} classes, of which top5 is always right", hint="--metric top1"
        )
    right = np.empty(len(scores), np.float64)
    for rows, block in blocks(scores):
        label = labels[rows, None]
        own = np.take_along_axis(block, label, axis=1)
        # With equal scores, the lower class comes first.
        before = (block > own) | ((block == own) & (np.arange(classes) < label))
        right[rows] = (before.sum(axis=1) < _TOP) & np.isfinite(block).all(axis=1)
    return Scored(right, predicted(scores))


def auc(scores: Array, labels: Array) -> Scored:
    """The area under the ROC curve; of more than two classes the mean of each against the rest.

    Scores are (n, classes), labels (n,). A sample's value is that area and the sample's influence
    on it. E. DeLong, D. DeLong and D.
    Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", Biometrics 44 (1988): their placements are the two terms.
    """
    classes, labels = classes_of(scores, labels)
    present = np.unique(labels)
    if len(present) < 2:
        raise InputRefused(
            f"every sample has the label {present[0] if len(present) else '-'}: there is no curve",
            hint="give samples of several classes",
        )
    numbers = [1] if classes == 2 else present.tolist()
    values = [_auc_of(_column(scores, number), labels == number) for number in numbers]
    return Scored(np.mean(values, axis=0), predicted(scores))


def _column(scores: Array, number: int) -> Floats:
    """The score of one class against the rest, (n,): logits become probabilities."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        return np.asarray(scores, np.float64).reshape(-1)
    column = np.empty(len(scores), np.float64)
    is_logits = any(bool((block < 0).any()) for _, block in blocks(scores))
    for rows, block in blocks(scores):
        each = np.asarray(block, np.float64)
        if is_logits:
            each = np.exp(each - each.max(axis=1, keepdims=True))
            each /= each.sum(axis=1, keepdims=True)
        column[rows] = each[:, number] - (each[:, 0] if scores.shape[1] == 2 else 0)
    return column


def _auc_of(scores: Floats, positive: Array) -> Floats:
    from scipy.stats import rankdata

    values = np.empty(len(scores), np.float64)
    if not np.isfinite(scores).all():
        return np.full(len(scores), np.nan)
    ranks = rankdata(scores)
    ups, downs = int(positive.sum()), int((~positive).sum())
    # The share of the other class that a sample is ranked correctly against; ties count half.
    above = (ranks[positive] - rankdata(scores[positive])) / downs
    below = 1 - (ranks[~positive] - rankdata(scores[~positive])) / ups
    area = float(above.mean())
    values[positive] = area + (above - area) * len(scores) / ups
    values[~positive] = area + (below - area) * len(scores) / downs
    return values


def f1(scores: Array, labels: Array) -> Scored:
    """The mean over the classes that occur of the harmonic mean of precision and recall.

    Scores are (n, classes), labels (n,). A sample's value is that and the sample's influence on
    it: F1 of a class is the ratio of two sums over the samples, twice the true positives to all
    that are predicted or labeled so.
    """
    _, labels = classes_of(scores, labels)
    classes = predicted(scores)
    occurring = np.union1d(labels, classes[classes >= 0])
    values = np.zeros(len(labels), np.float64)
    for number in occurring:
        positive, true = classes == number, labels == number
        both = 2.0 * (positive & true)
        values += ratio_of_sums(both, positive.astype(np.float64) + true)
    return Scored(values / len(occurring), classes)


TOP1 = Metric(top1, counts=True)
TOP5 = Metric(top5, counts=True)
AUC = Metric(auc)
F1 = Metric(f1)


def absolute(output: Array, labels: Array) -> Scored:
    """The mean absolute error of each sample, float64 (n,)."""
    return _mean_of(np.abs, output, labels)


def squared(output: Array, labels: Array) -> Scored:
    """The mean squared error of each sample, float64 (n,)."""
    return _mean_of(np.square, output, labels)


def _mean_of(measure: Callable[[Any], Any], output: Array, labels: Array) -> Scored:
    check_count(output, labels, "every sample needs its numbers")
    shapes = [tuple(size for size in a.shape[1:] if size != 1) for a in (output, labels)]
    if shapes[0] != shapes[1]:
        hint = "give one label for each number of a sample's output"
        if not shapes[1] and (labels == np.round(labels)).all():
            hint += "; the classes of a classifier are integers: y.astype(np.int64)"
        raise InputRefused(
            f"labels of shape {labels.shape} do not fit an output of shape {output.shape}",
            hint=hint,
        )
    values = np.empty(len(output), np.float64)
    for rows, block in blocks(output):
        difference = np.asarray(block, np.float64).reshape(len(block), -1)
        difference = difference - np.asarray(labels[rows], np.float64).reshape(len(block), -1)
        values[rows] = measure(difference).mean(axis=1)
    return Scored(values)


MAE = Metric(absolute, higher_is_better=False)
MSE = Metric(squared, higher_is_better=False)


# A probability of 0 would make a single token decide everything.
_LEAST = 1e-12


def masked_accuracy(scores: Array, labels: Array) -> Scored:
    """The share of the labeled positions whose highest score is the label's, (n,)."""
    _check_tokens(scores, labels)
    right, counted = np.empty(len(labels)), np.empty(len(labels))
    for rows, block in blocks(scores):
        kept = labels[rows] >= 0
        is_right = (block.argmax(axis=-1) == labels[rows]) & np.isfinite(block).all(axis=-1)
        right[rows], counted[rows] = _summed(is_right & kept), _summed(kept)
    return Scored(_ratio(right, counted))


def perplexity(scores: Array, labels: Array) -> Scored:
    """The exponential of the labels' mean negative log-likelihood, a value a sample, (n,)."""
    _check_tokens(scores, labels)
    loss, counted = np.empty(len(labels)), np.empty(len(labels))
    for rows, block in blocks(scores):
        kept = labels[rows] >= 0
        each = _negative_logs(np.asarray(block, np.float64), np.where(kept, labels[rows], 0))
        loss[rows], counted[rows] = _summed(np.where(kept, each, 0.0)), _summed(kept)
    means = _ratio(loss, counted)
    value = np.exp(means.mean())
    # The derivative of e to the mean is e to the mean.
    return Scored(value * (1 + means - means.mean()))


def _summed(values: Array) -> Floats:
    total: Floats = values.reshape(len(values), -1).sum(axis=1, dtype=np.float64)
    return total


def _negative_logs(scores: Floats, labels: Array) -> Floats:
    own = np.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
    sums = scores.sum(axis=-1)
    if scores.min() >= 0 and (np.abs(sums - 1) <= _ROUNDING).all():
        logs: Floats = -np.log(np.maximum(own / sums, _LEAST))
        return logs
    highest = scores.max(axis=-1)
    total: Floats = np.exp(scores - highest[..., None]).sum(axis=-1)
    return np.asarray(highest + np.log(total) - own, np.float64)


def _ratio(parts: Floats, wholes: Floats) -> Floats:
    if not wholes.sum():
        raise InputRefused(
            "all labels are below 0, so no position counts", hint="give labels of some tokens"
        )
    return ratio_of_sums(parts, wholes)


def _check_tokens(scores: Array, labels: Array) -> None:
    check_count(scores, labels, "token metrics need one score per token of the vocabulary")
    if labels.dtype.kind not in "iu" or scores.shape[:-1] != labels.shape or scores.ndim < 2:
        raise InputRefused(
            f"labels of {labels.dtype} {labels.shape} do not fit an output of shape "
            f"{scores.shape}: token metrics take (n, positions, vocabulary) and (n, positions)",
            hint="give one token number per position, -1 for those that do not count",
        )
    if labels.size and labels.max() >= scores.shape[-1]:
        raise InputRefused(
            f"a label is {labels.max()}, and the model has a vocabulary of {scores.shape[-1]}",
            hint="give labels of the model's vocabulary",
        )


MASKED_ACCURACY = Metric(masked_accuracy)
PERPLEXITY = Metric(perplexity, higher_is_better=False)
