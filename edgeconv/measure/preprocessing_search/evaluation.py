"""The outputs for the candidates of a search: with which preprocessing the model works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeconv.measure.metrics.accuracy import chosen_output, commonest_share, top1
from edgeconv.statistics.estimate import LEVEL
from edgeconv.statistics.paired import is_better
from edgeconv.statistics.proportion import chance_of, share_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgeconv.types import Accuracy

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]
Scores = Literal["probabilities", "sigmoids", "logits"]

_OFFSETS = (0, 1, -1)
# Of a sum of probabilities in half precision over thousands of classes.
_ROUNDING = 0.01


@dataclass(frozen=True)
class CandidateScore:
    """The accuracy with one candidate; it fits if the model works and no other one is better."""

    accuracy: Accuracy
    interval: tuple[float, float]
    fits: bool


@dataclass(frozen=True)
class SearchScores:
    """The candidates in their order, and what holds for all of them; see `Diagnosis`."""

    candidates: tuple[CandidateScore, ...]
    classes: int
    scores: Scores
    label_offset: int
    guessing: float
    chance: float


def score_candidates(
    outputs: Sequence[Outputs],
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    label_limits: tuple[int, int],
    output: str | None,
) -> SearchScores:
    """The accuracies of the outputs of every candidate, all for the same samples.

    `outputs` are (n, classes) by name; `labels` are (n,); `label_limits` are the lowest and highest
    label of the whole data set. The best candidate has the highest accuracy; it fits where guessing
    the commonest label would not do so well by chance. Others fit too, unless the best is better by
    a paired test. Raises as `top1` does.
    """
    classes = _classes(outputs[0], output)
    offsets = _possible_offsets(label_limits, classes)
    accuracies = {
        offset: [top1(each, labels + offset, output) for each in outputs] for offset in offsets
    }
    offset = _likeliest_offset(accuracies)
    chosen = accuracies[offset]
    best = _best(chosen)
    guessing = commonest_share(labels)
    right = chosen[best].correct.count("1")
    chance = chance_of(right, len(labels), guessing, len(outputs) * len(offsets))
    rivals = max(1, len(chosen) - 1)
    return SearchScores(
        candidates=tuple(
            CandidateScore(
                each,
                share_interval(each.correct.count("1"), each.samples),
                fits=chance < LEVEL and not is_better(chosen[best], each, rivals),
            )
            for each in chosen
        ),
        classes=classes,
        scores=kind_of_scores(chosen_output(outputs[best], output)),
        label_offset=offset if chance < LEVEL else offsets[0],
        guessing=guessing,
        chance=chance,
    )


def kind_of_scores(scores: Array) -> Scores:
    """Whether scores (n, classes) are probabilities, sigmoids or logits; see `Diagnosis`."""
    finite = np.asarray(scores[np.isfinite(scores).all(axis=1)], np.float64)
    if not finite.size or finite.min() < 0 or finite.max() > 1 + _ROUNDING:
        return "logits"
    adds_up = np.abs(finite.sum(axis=1) - 1) <= _ROUNDING
    return "probabilities" if adds_up.all() else "sigmoids"


def _classes(outputs: Mapping[str, Array], output: str | None) -> int:
    """The number of classes, two of a single score; `top1` refuses what has no scores."""
    shape = chosen_output(outputs, output).shape
    return max(2, int(shape[-1])) if len(shape) > 1 else 2


def _possible_offsets(limits: tuple[int, int], classes: int) -> tuple[int, ...]:
    """The offsets with which every label is a class, else 0, which `top1` refuses."""
    low, high = limits
    return tuple(n for n in _OFFSETS if low + n >= 0 and high + n < classes) or (0,)


def _likeliest_offset(accuracies: Mapping[int, Sequence[Accuracy]]) -> int:
    """The first offset, unless the best candidate of another is better than its own."""
    likeliest, *others = accuracies
    for offset in others:
        best, other = (accuracies[n][_best(accuracies[n])] for n in (likeliest, offset))
        if is_better(other, best, sum(map(len, accuracies.values()))):
            likeliest = offset
    return likeliest


def _best(accuracies: Sequence[Accuracy]) -> int:
    """The index of the first highest value."""
    return int(np.argmax([accuracy.value for accuracy in accuracies]))
