"""Metrics of token scores: an output (n, positions, vocabulary), labels (n, positions).

Positions with a label below 0 do not count. A sample of more positions weighs more.
"""

from __future__ import annotations

import numpy as np

from edgeconv.measure.metrics.scores import (
    Array,
    Floats,
    Metric,
    Scored,
    blocks,
    check_count,
    ratio_of_sums,
)
from edgeconv.types.errors import InputRefused

_ROUNDING = 0.01
# A probability of 0 would make a single token decide everything.
_LEAST = 1e-12


def masked_accuracy(scores: Array, labels: Array) -> Scored:
    """The share of the labeled positions whose highest score is the label's, (n,)."""
    _check(scores, labels)
    right, counted = np.empty(len(labels)), np.empty(len(labels))
    for rows, block in blocks(scores):
        kept = labels[rows] >= 0
        is_right = (block.argmax(axis=-1) == labels[rows]) & np.isfinite(block).all(axis=-1)
        right[rows], counted[rows] = _summed(is_right & kept), _summed(kept)
    return Scored(_ratio(right, counted))


def perplexity(scores: Array, labels: Array) -> Scored:
    """The exponential of the labels' mean negative log-likelihood, a value a sample, (n,)."""
    _check(scores, labels)
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


def _check(scores: Array, labels: Array) -> None:
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
