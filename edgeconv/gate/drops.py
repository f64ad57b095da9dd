"""How much worse a model is than its reference, sample by sample."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError
from edgeconv.reporting.values import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.gate.asked import Asked, Question
    from edgeconv.gate.pairs import Pair, Unpaired
    from edgeconv.statistics.bootstrap import MeanOf, Resampling
    from edgeconv.statistics.drop import MatchedDrop
    from edgeconv.statistics.evidence import Evidence, Levels
    from edgeconv.statistics.unpaired import UnpairedDrop
    from edgeconv.types import Accuracy, Finding, Judging, Measurement

_WITH_A_LOSS = "measure on the samples of the lock to compare one by one"
_WITHOUT_A_LOSS = (
    "measure on the samples of the lock to compare one by one, or accept these samples with "
    "edgeconv check --update"
)


def accuracy_drop(asked: Asked, pair: Pair) -> Finding | Question:
    """How much worse the metric is, in its own unit."""
    if reason := _not_finite(pair):
        return asked.missing(reason)
    if pair.is_same:
        return asked.same(pair.after.samples)
    evidence = drop_evidence(pair.before, pair.after, asked.judging)
    return asked.question(lambda levels: _between(asked, evidence, levels, pair))


def relative_drop(asked: Asked, pair: Pair) -> Finding | Question:
    """How much worse the metric is, as a share of the reference's."""
    if reason := _not_finite(pair):
        return asked.missing(reason)
    if pair.is_same:
        return asked.same(pair.after.samples)
    if pair.before.value <= 0:
        return asked.missing(f"there is no share of a reference of {pair.before.value:g}")
    evidence = _relative(pair, asked.judging)
    return asked.question(lambda levels: _between(asked, evidence, levels, pair))


def unpaired_drop(asked: Asked, other: Unpaired) -> Finding | Question:
    """How much worse the metric is than it was on other samples: enough to fail, never to pass.

    Two sets of samples differ by more than chance, so that what is not surely beyond the limit is
    not measured. Both values are said.
    """
    if other.before is None or other.after is None:
        return asked.missing(other.reason)
    if reason := _not_finite(other):
        return asked.missing(reason)
    evidence = _unpaired(asked, other.before, other.after)
    if evidence is None:
        return asked.missing(other.reason)
    return asked.question(lambda levels: _of_other_samples(asked, evidence, levels, other))


def flip_rate(asked: Asked, pair: Pair) -> Finding | Question:
    """The share of samples that are said to be of another class."""
    before, after = pair.before.predicted, pair.after.predicted
    if not after or len(before) != len(after):
        return asked.missing(f"the metric {pair.after.metric} has no classes that could change")
    if pair.is_same:
        return asked.same(len(after))
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    return _flipped(asked, changed, len(after))


def unlabelled_flip_rate(asked: Asked, row: Measurement, pair: Unpaired) -> Finding | Question:
    """The same by the outputs, which need no labels; of them, the lock has none."""
    counted = [(one.flips, one.samples) for one in row.agreement if one.flips is not None]
    if counted and asked.reference == "baseline":
        return _flipped(asked, *max(counted))
    return asked.same() if pair.is_same else asked.missing(pair.reason)


def drop_evidence(
    before: Accuracy, after: Accuracy, judging: Judging, rows: Sequence[int] | None = None
) -> MatchedDrop | MeanOf:
    """What two accuracies of the same samples say of the drop, over all samples or these.

    Raises `UsageError` for a method that does not fit the metric.
    """
    if before.correct and judging.method != "bootstrap":
        return _matched(before.correct, after.correct, rows)
    if judging.method == "mcnemar":
        raise UsageError(
            f"the method mcnemar counts right answers, which the metric {after.metric} does not",
            hint='method = "auto" or "bootstrap"',
        )
    return _mean(before, after, judging, rows)


def resampling(judging: Judging) -> Resampling:
    """How the bootstrap draws."""
    from edgeconv.statistics.bootstrap import Resampling

    return Resampling(judging.resamples, judging.seed)


def numbers(accuracy: Accuracy) -> tuple[float, ...]:
    """What each sample contributes: 1 and 0 where right answers are counted."""
    if accuracy.correct:
        return tuple(1.0 if one == "1" else 0.0 for one in accuracy.correct)
    return accuracy.per_sample


def accuracy_evidence(accuracy: Accuracy, judging: Judging) -> Evidence:
    """What an accuracy of at least one sample, with a result for each, says of the true one."""
    from edgeconv.statistics.bootstrap import MeanOf
    from edgeconv.statistics.proportion import Share

    if accuracy.correct:
        return Share(accuracy.correct.count("1"), accuracy.samples)
    scale = max(map(abs, accuracy.per_sample))
    return MeanOf(accuracy.per_sample, scale, resampling(judging), has_zero=False)


def _between(asked: Asked, evidence: Evidence, levels: Levels, pair: Pair) -> Finding:
    """The drop with the two values that it is between; they are said where it does not hold."""
    found = asked.judged(evidence, levels)
    before, after = pair.before.value, pair.after.value
    reason = found.reason
    if found.outcome == "failed":
        there = "in the lock" if pair.reference == "lock" else "of the trained model"
        metric = pair.after.metric
        reason = f"{value_of(metric, after)} here, {value_of(metric, before)} {there}"
    return msgspec.structs.replace(found, before=before, after=after, reason=reason)


def _of_other_samples(
    asked: Asked, evidence: UnpairedDrop, levels: Levels, other: Unpaired
) -> Finding:
    assert other.before is not None
    assert other.after is not None
    metric, before, after = other.after.metric, other.before.value, other.after.value
    values = (
        f"{value_of(metric, after)} on today's samples; {value_of(metric, before)} on the lock's, "
        f"which were others"
    )
    found = asked.judged(evidence, levels, reason=f"{values} ({other.reason})")
    if found.outcome != "failed":
        is_loss = evidence.value > 0
        reason = f"{values} ({other.reason}); {_WITH_A_LOSS if is_loss else _WITHOUT_A_LOSS}"
        found = asked.missing(reason)
    return msgspec.structs.replace(found, before=before, after=after)


def _unpaired(asked: Asked, before: Accuracy, after: Accuracy) -> UnpairedDrop | None:
    """None where there is no result for every sample."""
    from edgeconv.statistics.unpaired import UnpairedDrop

    for one in (before, after):
        if not one.samples or len(one.correct or one.per_sample) != one.samples:
            return None
    return UnpairedDrop(
        accuracy_evidence(before, asked.judging),
        accuracy_evidence(after, asked.judging),
        higher_is_better=after.higher_is_better,
        is_relative="relative" in asked.name,
    )


def _flipped(asked: Asked, changed: int, samples: int) -> Question:
    from edgeconv.statistics.proportion import Flips

    return asked.question(lambda levels: asked.judged(Flips(changed, samples), levels))


def _matched(before: str, after: str, rows: Sequence[int] | None) -> MatchedDrop:
    from edgeconv.statistics.drop import MatchedDrop

    chosen = range(len(after)) if rows is None else rows
    pairs = [(before[i], after[i]) for i in chosen]
    return MatchedDrop(pairs.count(("1", "0")), pairs.count(("0", "1")), len(pairs))


def _mean(
    before: Accuracy, after: Accuracy, judging: Judging, rows: Sequence[int] | None = None
) -> MeanOf:
    from edgeconv.statistics.bootstrap import MeanOf

    good, bad = numbers(before), numbers(after)
    chosen = range(len(bad)) if rows is None else rows
    sign = 1.0 if after.higher_is_better else -1.0
    values = tuple(sign * (good[i] - bad[i]) for i in chosen)
    # So far as can be seen no two numbers are further apart.
    scale = max(0.0, *good, *bad) - min(0.0, *good, *bad)
    return MeanOf(values, scale, resampling(judging))


def _relative(pair: Pair, judging: Judging) -> Evidence:
    from edgeconv.statistics.bootstrap import MeanOf, RelativeMean
    from edgeconv.statistics.drop import MatchedDrop, RelativeDrop

    evidence = drop_evidence(pair.before, pair.after, judging)
    if isinstance(evidence, MatchedDrop):
        return RelativeDrop(evidence, pair.before.correct.count("1"))
    assert isinstance(evidence, MeanOf)
    return RelativeMean(evidence, numbers(pair.before))


def _not_finite(pair: Pair | Unpaired) -> str:
    assert pair.before is not None
    assert pair.after is not None
    values = pair.before.value, pair.after.value, *numbers(pair.before), *numbers(pair.after)
    return "" if all(map(math.isfinite, values)) else "a number of it is not finite"
