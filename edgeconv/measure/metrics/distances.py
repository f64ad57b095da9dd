"""Metrics of numbers: how far an output is from labels of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.measure.metrics.scores import Array, Metric, Scored, blocks, check_count
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable


def absolute(output: Array, labels: Array) -> Scored:
    """The mean absolute error of each sample, float64 (n,)."""
    return _mean(np.abs, output, labels)


def squared(output: Array, labels: Array) -> Scored:
    """The mean squared error of each sample, float64 (n,)."""
    return _mean(np.square, output, labels)


def _mean(measure: Callable[[Any], Any], output: Array, labels: Array) -> Scored:
    check_count(output, labels, "every sample needs its numbers")
    shapes = [tuple(size for size in a.shape[1:] if size != 1) for a in (output, labels)]
    if shapes[0] != shapes[1]:
        raise InputRefused(
            f"labels of shape {labels.shape} do not fit an output of shape {output.shape}",
            hint="give one label for each number of a sample's output",
        )
    values = np.empty(len(output), np.float64)
    for rows, block in blocks(output):
        difference = np.asarray(block, np.float64).reshape(len(block), -1)
        difference = difference - np.asarray(labels[rows], np.float64).reshape(len(block), -1)
        values[rows] = measure(difference).mean(axis=1)
    return Scored(values)


MAE = Metric(absolute, higher_is_better=False)
MSE = Metric(squared, higher_is_better=False)
