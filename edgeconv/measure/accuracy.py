"""Top-1 accuracy, with the answer to every sample, and its change beside a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.nouns import Accuracy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def top1(
    outputs: Mapping[str, NDArray[np.generic]], labels: NDArray[np.int64], output: str | None
) -> Accuracy:
    """Top-1 accuracy of one output, (n, classes), against `labels`, (n,).

    `output` names it; None takes the only one. Ties go to the lowest class. A sample
    whose scores are not all finite counts as wrong. Raises `UsageError` where the output
    must be named, `InputRefused` where it does not fit the labels.
    """
    scores = np.asarray(chosen_output(outputs, output), np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2 or len(scores) != len(labels):
        raise InputRefused(
            f"labels for {len(labels)} samples do not fit an output of shape {scores.shape}: "
            "top-1 accuracy needs one score per class",
            hint="measure without labels, or export the model with class scores as an output",
        )
    if len(labels) and labels.max() >= scores.shape[1]:
        raise InputRefused(
            f"a label is {labels.max()}, and the model has {scores.shape[1]} classes",
            hint="labels count from 0; are they for another model, or do they start at 1?",
        )
    right = (scores.argmax(axis=1) == labels) & np.isfinite(scores).all(axis=1)
    return Accuracy(
        value=float(right.mean()),
        samples=len(labels),
        correct="".join("1" if answer else "0" for answer in right),
    )


def chosen_output(
    outputs: Mapping[str, NDArray[np.generic]], output: str | None
) -> NDArray[np.generic]:
    """The output of that name; None takes the only one. Raises `UsageError`."""
    if output is None and len(outputs) == 1:
        return next(iter(outputs.values()))
    if output is None:
        raise UsageError(
            f"the model has {len(outputs)} outputs: {', '.join(sorted(outputs))}",
            hint="say with --output which one the labels are for",
        )
    if output not in outputs:
        raise unknown_name("output", output, outputs)
    return outputs[output]


def flips(before: Accuracy, after: Accuracy) -> tuple[int, int]:
    """How many samples went from wrong to right, and from right to wrong.

    Raises `InputRefused` for accuracies of different numbers of samples.
    """
    if len(before.correct) != len(after.correct):
        raise InputRefused(
            f"accuracies of {before.samples} and {after.samples} samples cannot be compared"
        )
    pairs = list(zip(before.correct, after.correct, strict=True))
    return pairs.count(("0", "1")), pairs.count(("1", "0"))
