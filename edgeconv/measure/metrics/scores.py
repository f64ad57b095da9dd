"""What a metric is: from outputs and labels to one number a sample, of which it is the mean.

A metric that is not a mean, such as the area under a curve, gives each sample the value plus the
sample's influence on it (the first-order term of the delta method, for that area DeLong's). So
the value of every metric is a mean, and the difference of two models on the same samples has an
interval.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeconv.types.errors import InputRefused

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Outputs = dict[str, Array]

_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Scored:
    """One number a sample, float64 (n,), and the predicted classes, int64 (n,), if any."""

    values: Floats
    predicted: np.ndarray[Any, np.dtype[np.int64]] | None = None


@dataclass(frozen=True)
class Metric:
    """A metric of one output, (n, ...), and labels, (n, ...).

    `counts` says that it counts right answers: each value is 1 or 0. `score` raises
    `InputRefused` where output and labels do not fit it or each other.
    """

    score: Callable[[Array, Array], Scored]
    counts: bool = False
    higher_is_better: bool = True


@dataclass(frozen=True)
class SimilarityMetric:
    """A metric that needs no labels: it compares all outputs with the reference's."""

    score: Callable[[Outputs, Outputs], Scored]


def blocks(array: Array) -> Iterator[tuple[slice, Array]]:
    """The rows of an array (n, ...), which may exceed the memory, in blocks with their slices."""
    row_bytes = max(1, array[:1].nbytes)
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        rows = slice(start, min(start + step, len(array)))
        yield rows, np.asarray(array[rows])


def check_count(scores: Array, labels: Array, need: str) -> None:
    """Raise `InputRefused` unless scores and labels are (n, ...); `need` ends the message."""
    if scores.ndim < 1 or len(scores) != len(labels):
        raise no_fit(scores, labels, need)


def no_fit(scores: Array, labels: Array, need: str) -> InputRefused:
    """The refusal of labels (n, ...) for an output of another shape."""
    return InputRefused(
        f"labels for {len(labels)} samples do not fit an output of shape {scores.shape}: {need}",
        hint="measure without labels, or export the model with class scores as an output",
    )


def ratio_of_sums(parts: Floats, wholes: Floats) -> Floats:
    """Values whose mean is sum(parts) / sum(wholes), each with its own influence on that."""
    ratio = parts.sum() / wholes.sum()
    values: Floats = ratio + (parts - ratio * wholes) / wholes.mean()
    return values
