"""Drops and flips of a model against its reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError
from edgeconv.reporting.units import value_of
from edgeconv.statistics.paired import drop_of, mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.gate.limit_check import Interval, LimitCheck, OpenLimit
    from edgeconv.gate.pairs import PairedAccuracies, UnpairedAccuracies
    from edgeconv.statistics.bootstrap import MeanOf
    from edgeconv.statistics.drop import MatchedDrop, UnpairedDrop
    from edgeconv.statistics.estimate import Estimate, Levels
    from edgeconv.statistics.proportion import Proportion
    from edgeconv.types import Accuracy, Finding, GateStatistics, Measurement

_TO_COMPARE = "measure on the samples of the lock to compare sample by sample"
_OR_ACCEPT = ", or accept these samples with edgeconv check --update"


def accuracy_drop(check: LimitCheck, pair: PairedAccuracies) -> Finding | OpenLimit:
    """The drop of the metric, in its unit or relative to the reference, by the limit's name."""
    before = pair.before.value
    if reason := _not_finite(pair.before, pair.after):
        return check.missing(reason)
    if pair.is_same:
        return check.same(pair.after.samples)
    estimate: Estimate = drop_estimate(pair.before, pair.after, check.statistics)
    _, interval = drop_of(pair.before, pair.after)
    if "relative" in check.name:
        if before <= 0:
            return check.missing(f"a reference of {before:g} has no relative drop")
        estimate = _relative(pair, check.statistics)
        interval = interval and (interval[0] / before, interval[1] / before)
    return check.defer(lambda levels: _test_drop(check, estimate, levels, pair, interval))


def unpaired_drop(check: LimitCheck, other: UnpairedAccuracies) -> Finding | OpenLimit:
    """The drop from the metric on other samples, which can fail but never pass.

    Two sets of samples differ by more than chance: a drop that is not surely beyond the limit
    counts as not measured.
    """
    from edgeconv.statistics.drop import UnpairedDrop

    before, after = other.before, other.after
    if before is None or after is None:
        return check.missing(other.reason)
    if reason := _not_finite(before, after):
        return check.missing(reason)
    if not all(each.samples and len(numbers(each)) == each.samples for each in (before, after)):
        return check.missing(other.reason)
    estimate = UnpairedDrop(
        accuracy_estimate(before, check.statistics),
        accuracy_estimate(after, check.statistics),
        higher_is_better=after.higher_is_better,
        is_relative="relative" in check.name,
    )
    values = (
        f"{value_of(after.metric, after.value)} on today's samples; "
        f"{value_of(after.metric, before.value)} on other samples in the lock ({other.reason})"
    )
    return check.defer(
        lambda levels: _test_unpaired(check, estimate, levels, (before, after), values)
    )


def flip_rate(check: LimitCheck, pair: PairedAccuracies) -> Finding | OpenLimit:
    """The share of samples whose predicted class changed."""
    before, after = pair.before.predicted, pair.after.predicted
    if not after or len(before) != len(after):
        return check.missing(f"the metric {pair.after.metric} has no classes that could change")
    if pair.is_same:
        return check.same(len(after))
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    return _flip_limit(check, changed, len(after))


def unlabeled_flip_rate(
    check: LimitCheck, row: Measurement, pair: UnpairedAccuracies
) -> Finding | OpenLimit:
    """The flip rate from the outputs, without labels; the lock has no outputs."""
    flips = [(each.flips, each.samples) for each in row.agreement if each.flips is not None]
    if flips and check.reference == "baseline":
        return _flip_limit(check, *max(flips))
    return check.same() if pair.is_same else check.missing(pair.reason)


def drop_estimate(
    before: Accuracy,
    after: Accuracy,
    statistics: GateStatistics,
    rows: Sequence[int] | None = None,
) -> MatchedDrop | MeanOf:
    """The drop between two accuracies of the same samples, over all samples or `rows`.

    Raises `UsageError` for a method that does not fit the metric.
    """
    from edgeconv.statistics.drop import MatchedDrop

    chosen = range(len(numbers(after))) if rows is None else rows
    if before.correct and statistics.method != "bootstrap":
        pairs = [(before.correct[i], after.correct[i]) for i in chosen]
        return MatchedDrop(pairs.count(("1", "0")), pairs.count(("0", "1")), len(pairs))
    if statistics.method == "mcnemar":
        raise UsageError(
            f"the method mcnemar counts right answers, which the metric {after.metric} does not",
            hint='method = "auto" or "bootstrap"',
        )
    good, bad = numbers(before), numbers(after)
    sign = 1.0 if after.higher_is_better else -1.0
    # As far as is known, no two numbers differ by more.
    scale = max(0.0, *good, *bad) - min(0.0, *good, *bad)
    return _mean(tuple(sign * (good[i] - bad[i]) for i in chosen), scale, statistics)


def numbers(accuracy: Accuracy) -> tuple[float, ...]:
    """The result of each sample: 1 or 0 where right answers are counted."""
    if accuracy.correct:
        return tuple(1.0 if answer == "1" else 0.0 for answer in accuracy.correct)
    return accuracy.per_sample


def accuracy_estimate(accuracy: Accuracy, statistics: GateStatistics) -> Proportion | MeanOf:
    """The estimate of an accuracy with a result for each of at least one sample."""
    from edgeconv.statistics.proportion import Proportion

    if accuracy.correct:
        return Proportion(accuracy.correct.count("1"), accuracy.samples)
    scale = max(map(abs, accuracy.per_sample))
    return _mean(accuracy.per_sample, scale, statistics, has_zero=False)


def accuracy_interval(accuracy: Accuracy) -> Interval | None:
    """The 95 % interval of an accuracy; None for one number that is not a right answer."""
    from edgeconv.statistics.proportion import share_interval

    if accuracy.correct:
        return share_interval(accuracy.correct.count("1"), accuracy.samples)
    return mean_interval(accuracy.per_sample) if accuracy.samples > 1 else None


def _test_drop(
    check: LimitCheck,
    estimate: Estimate,
    levels: Levels,
    pair: PairedAccuracies,
    interval: Interval | None,
) -> Finding:
    """The finding with both values, which are its reason where it failed."""
    finding = check.test(estimate, levels, interval=interval)
    before, after = pair.before.value, pair.after.value
    reason = finding.reason
    if finding.outcome == "failed":
        reference = "in the lock" if pair.reference == "lock" else "of the trained model"
        metric = pair.after.metric
        reason = f"{value_of(metric, after)} here, {value_of(metric, before)} {reference}"
    return msgspec.structs.replace(finding, before=before, after=after, reason=reason)


def _test_unpaired(
    check: LimitCheck,
    estimate: UnpairedDrop,
    levels: Levels,
    values: tuple[Accuracy, Accuracy],
    reason: str,
) -> Finding:
    interval = _unpaired_interval(estimate, *values)
    finding = check.test(estimate, levels, interval=interval, reason=reason)
    if finding.outcome != "failed":
        what_next = _TO_COMPARE if estimate.value > 0 else f"{_TO_COMPARE}{_OR_ACCEPT}"
        finding = check.missing(f"{reason}; {what_next}")
    before, after = values
    return msgspec.structs.replace(finding, before=before.value, after=after.value)


def _unpaired_interval(
    estimate: UnpairedDrop, before: Accuracy, after: Accuracy
) -> Interval | None:
    """The 95 % interval of a drop between two sets of samples, from those of both values.

    R. Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17 (1998) 873-890, method 10. A relative drop is over the measured value
    before.
    """
    interval, other = accuracy_interval(before), accuracy_interval(after)
    if interval is None or other is None:
        return None
    (low, high), (other_low, other_high) = interval, other
    down = math.hypot(before.value - low, other_high - after.value)
    up = math.hypot(high - before.value, after.value - other_low)
    if not estimate.higher_is_better:
        down, up = up, down
    per = before.value if estimate.is_relative and before.value > 0 else 1.0
    return estimate.value - down / per, estimate.value + up / per


def _flip_limit(check: LimitCheck, changed: int, samples: int) -> OpenLimit:
    from edgeconv.statistics.proportion import Flips, share_interval

    estimate, interval = Flips(changed, samples), share_interval(changed, samples)
    return check.defer(lambda levels: check.test(estimate, levels, interval=interval))


def _mean(
    values: tuple[float, ...], scale: float, statistics: GateStatistics, *, has_zero: bool = True
) -> MeanOf:
    from edgeconv.statistics.bootstrap import MeanOf, Resampling

    return MeanOf(values, scale, Resampling(statistics.resamples, statistics.seed), has_zero)


def _relative(pair: PairedAccuracies, statistics: GateStatistics) -> Estimate:
    from edgeconv.statistics.bootstrap import RelativeMean
    from edgeconv.statistics.drop import MatchedDrop, RelativeDrop

    estimate = drop_estimate(pair.before, pair.after, statistics)
    if isinstance(estimate, MatchedDrop):
        return RelativeDrop(estimate, pair.before.correct.count("1"))
    return RelativeMean(estimate, numbers(pair.before))


def _not_finite(*accuracies: Accuracy) -> str:
    values = (value for each in accuracies for value in (each.value, *numbers(each)))
    return "" if all(map(math.isfinite, values)) else "a number of it is not finite"
