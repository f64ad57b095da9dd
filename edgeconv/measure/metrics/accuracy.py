"""Accuracies: metrics of one model's outputs, and what changed compared with another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.data.strings import holds_strings
from edgeconv.measure.metrics.classes import TOP1
from edgeconv.types import Accuracy
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from edgeconv.measure.metrics.scores import Scored

    Outputs = Mapping[str, NDArray[np.generic]]


def top1(outputs: Outputs, labels: NDArray[np.generic], output: str | None) -> Accuracy:
    """Top-1 accuracy of one output, (n, classes) or (n, 1), against `labels`, (n,).

    `output` names it; None takes the only one. Ties go to the lowest class. A sample
    whose scores are not all finite counts as wrong. Raises `UsageError` if the output
    must be named, `InputRefused` if it does not fit the labels.
    """
    return accuracy_of("top1", TOP1.score(chosen_output(outputs, output), labels), counts=True)


def commonest_share(labels: NDArray[np.generic]) -> float:
    """The share of the commonest of `labels`, (n,); 1 of none."""
    if not len(labels):
        return 1.0
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def accuracy_of(
    metric: str, scored: Scored, *, counts: bool = False, higher_is_better: bool = True
) -> Accuracy:
    """The accuracy of a metric's values. Raises `ToolFailed` if one is not finite."""
    bad = np.flatnonzero(~np.isfinite(scored.values))
    if bad.size:
        raise ToolFailed(
            f"the metric {metric} gives {scored.values[bad[0]]} for sample {bad[0]}"
            + (f", and nothing finite for {bad.size} samples" if bad.size > 1 else ""),
            hint="look at the model's outputs for that sample, or at the metric",
        )
    return Accuracy(
        metric=metric,
        value=float(scored.values.mean()),
        samples=len(scored.values),
        higher_is_better=higher_is_better,
        correct="".join("1" if value else "0" for value in scored.values) if counts else "",
        per_sample=() if counts else tuple(scored.values.tolist()),
        predicted=() if scored.predicted is None else tuple(scored.predicted.tolist()),
    )


def chosen_output(outputs: Outputs, output: str | None) -> NDArray[np.generic]:
    """The output of that name, (n, ...); None takes the only one.

    Raises `UsageError`, and `InputRefused` for an output of strings.
    """
    name = chosen_name(outputs, output)
    if holds_strings(outputs[name]):
        numbers = [each for each, array in outputs.items() if not holds_strings(array)]
        raise InputRefused(
            f"output {name!r} holds strings, and labels are compared with numbers",
            hint=f"choose another one: --output {numbers[0]}"
            if numbers
            else "measure without labels: the strings are compared with the trained model's",
        )
    return outputs[name]


def chosen_name(names: Collection[str], output: str | None) -> str:
    """The name of the output that labels are for; None takes the only one. Raises `UsageError`."""
    if output is None and len(names) == 1:
        return next(iter(names))
    if output is None:
        raise UsageError(
            f"the model has {len(names)} outputs: {', '.join(sorted(names))}",
            hint="say with --output which one the labels are for",
        )
    if output not in names:
        raise unknown_name("output", output, names)
    return output


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
