"""Drops and flips of a model against its reference: the trained baseline, or the lock.

They are taken over all samples, and over each class and slice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from edgeconv.reporting.units import value_of
from edgeconv.statistics.comparison import drop_of, mean_interval
from edgeconv.statistics.estimate import LEVEL, Estimate, Flips, Levels, Proportion, share_interval
from edgeconv.types import ClassDrop, GateStatistics
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.budget import Interval, LimitCheck, OpenLimit
    from edgeconv.statistics.bootstrap import MeanOf
    from edgeconv.statistics.drop import MatchedDrop, UnpairedDrop
    from edgeconv.types import (
        Accuracy,
        DataIdentity,
        Finding,
        LockedModel,
        LockedStage,
        Measurement,
        Outcome,
        Reference,
        Report,
    )


_DIGITS = 12
_TO_COMPARE = "measure on the samples of the lock to compare sample by sample"
_OR_ACCEPT = ", or accept these samples with edgeconv check --update"
Kind = Literal["class", "slice"]
Groups = dict[str, list[int]]
# Their numbers are parts of a metric of all samples, which a group of samples does not have.
_OF_ALL = frozenset({"auc", "f1", "masked_accuracy", "perplexity"})
_MOST_NAMED = 5
_MOST_SHOWN = 50
_USUAL = GateStatistics()


@dataclass(frozen=True, kw_only=True)
class PairedAccuracies:
    """Two accuracies of the same samples and metric; `is_same`: of the same file and answers."""

    reference: Reference
    before: Accuracy
    after: Accuracy
    is_same: bool


@dataclass(frozen=True, kw_only=True)
class UnpairedAccuracies:
    """Why there is no pair.

    `is_same`: file and samples are the reference's, so no answer can differ. `before` and
    `after` are set where they have the same metric and different samples.
    """

    reference: Reference
    reason: str
    is_same: bool = False
    before: Accuracy | None = None
    after: Accuracy | None = None


def pairs_of(
    row: Measurement, report: Report, locked: LockedModel | None
) -> Iterator[PairedAccuracies | UnpairedAccuracies]:
    """An artifact with the trained baseline, and a model that is locked with the lock."""
    if row.role == "artifact":
        baseline = baseline_of(report)
        if baseline is None:
            yield UnpairedAccuracies(
                reference="baseline", reason="the trained model was not measured"
            )
        else:
            is_same = baseline.sha256 == row.sha256
            yield pair_accuracies("baseline", baseline.accuracy, row.accuracy, is_same=is_same)
    stage = locked.stage_of(row) if locked else None
    if locked is not None and stage is not None:
        yield _paired_with_lock(row, report, locked, stage)


def baseline_of(report: Report) -> Measurement | None:
    """The trained model; for a .tflite source, the float32 artifact."""
    if report.baseline is not None:
        return report.baseline
    sources = {each.sha256 for each in report.artifacts if each.source_kind == "tflite"}
    rows = [row for row in report.measurements if row.recipe == "float32" and not row.error]
    return next((row for row in rows if row.sha256 in sources), None)


def _paired_with_lock(
    row: Measurement, report: Report, locked: LockedModel, stage: LockedStage
) -> PairedAccuracies | UnpairedAccuracies:
    after = _by_metric(row, stage.accuracy)
    data = report.data
    if data is None or data.sha256 != locked.test_sha256:
        return _on_other_samples(stage.accuracy, after, data, locked)
    # Other kernels may answer otherwise from the same file.
    is_same = stage.sha256 == row.sha256 and stage.is_measured_like(row)
    if stage.accuracy is None and after is None:
        # Preprocessing is not part of the samples, and changes the answers of the same file.
        is_same = is_same and data.preprocessing == locked.preprocessing
        reason = (
            "without labels the lock has no answers to compare with; add labels to the test data, "
            "or review the outputs before you accept them with edgeconv check --update"
        )
        return UnpairedAccuracies(reference="lock", reason=reason, is_same=is_same)
    return pair_accuracies("lock", stage.accuracy, after, is_same=is_same)


def _by_metric(row: Measurement, locked: Accuracy | None) -> Accuracy | None:
    measured = [each for each in (row.accuracy, *row.metrics) if each is not None]
    alike = (each for each in measured if locked is not None and each.metric == locked.metric)
    return next(alike, row.accuracy)


def _on_other_samples(
    before: Accuracy | None, after: Accuracy | None, data: DataIdentity | None, locked: LockedModel
) -> UnpairedAccuracies:
    here = _samples_text(data.samples, data.sha256) if data else "none"
    there = _samples_text(locked.test_samples, locked.test_sha256)
    reason = f"the test samples differ from those of the lock: {here} here, {there} there"
    if before is None or after is None or before.metric != after.metric:
        return UnpairedAccuracies(reference="lock", reason=reason)
    return UnpairedAccuracies(reference="lock", reason=reason, before=before, after=after)


def _samples_text(samples: int, sha256: str) -> str:
    return f"{samples} (hash {sha256[:_DIGITS]})"


def pair_accuracies(
    reference: Reference, before: Accuracy | None, after: Accuracy | None, *, is_same: bool
) -> PairedAccuracies | UnpairedAccuracies:
    """Two accuracies, if they are of the same samples; `is_same`: of the same file."""
    if before is None or after is None:
        which = "this model" if after is None else "its reference"
        return UnpairedAccuracies(
            reference=reference, reason=f"the accuracy of {which} was not measured"
        )
    if reason := _unlike(before, after):
        return UnpairedAccuracies(reference=reference, reason=reason)
    is_same = is_same and before == after
    return PairedAccuracies(reference=reference, before=before, after=after, is_same=is_same)


def _unlike(before: Accuracy, after: Accuracy) -> str:
    """Why the two cannot be paired; "" where they can."""
    if before.metric != after.metric or before.higher_is_better != after.higher_is_better:
        names = f'"{after.metric}", "{before.metric}"'
        return (
            f"the metric is {after.metric}, and was {before.metric}; measure both to compare them: "
            f"metric = [{names}] in [bench]"
        )
    if before.samples != after.samples or after.samples == 0:
        return f"it has {after.samples} samples, its reference {before.samples}"
    counts = {len(before.correct or before.per_sample), len(after.correct or after.per_sample)}
    if counts != {after.samples} or bool(before.correct) != bool(after.correct):
        return "there is no result for every sample"
    return ""


def accuracy_drop(check: LimitCheck, pair: PairedAccuracies) -> Finding | OpenLimit:
    """The drop of the metric, in its unit or relative to the reference."""
    before = pair.before.value
    if reason := _not_finite(pair.before, pair.after):
        return check.missing(reason)
    if pair.is_same:
        return check.same(pair.after.samples)
    estimate: Estimate = drop_estimate(pair.before, pair.after, check.statistics)
    _, interval = drop_of(pair.before, pair.after)
    if check.kind.drop == "relative":
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
        is_relative=check.kind.drop == "relative",
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
    before: Accuracy, after: Accuracy, statistics: GateStatistics, rows: Sequence[int] | None = None
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
    if accuracy.correct:
        return Proportion(accuracy.correct.count("1"), accuracy.samples)
    scale = max(map(abs, accuracy.per_sample))
    return _mean(accuracy.per_sample, scale, statistics, has_zero=False)


def accuracy_interval(accuracy: Accuracy) -> Interval | None:
    """The 95 % interval of an accuracy; None for one number that is not a right answer."""
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
    return replace(finding, before=before, after=after, reason=reason)


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
    return replace(finding, before=before.value, after=after.value)


def _unpaired_interval(
    estimate: UnpairedDrop, before: Accuracy, after: Accuracy
) -> Interval | None:
    """The 95 % interval of a drop between two sets of samples, from the intervals of both values.

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


@dataclass(frozen=True)
class Grouping:
    """The indices of the test samples by class and by slice, sorted by name."""

    labels: tuple[int, ...]
    classes: Groups
    slices: Groups

    def of(self, kind: Kind) -> Groups:
        """The groups of this kind; empty where they are not known."""
        return self.classes if kind == "class" else self.slices


def grouping_of(report: Report, slices: Sequence[str]) -> Grouping:
    """The groups of a report's samples. Raises `InputRefused` for a wrong number of slices."""
    samples = report.data.samples if report.data else len(report.labels)
    if slices and len(slices) != samples:
        raise InputRefused(
            f"there are {len(slices)} slices for {samples} test samples",
            hint="write one line for each sample, in the order of the data",
        )
    classes = {label: _class_name(label, report.class_names) for label in set(report.labels)}
    known = [classes[label] for label in report.labels]
    return Grouping(report.labels, _group(known), _group(slices))


def worst_drop(
    check: LimitCheck, pair: PairedAccuracies, kind: Kind, grouping: Grouping
) -> Finding | OpenLimit:
    """The drop of the worst group, which fails if any group does, and holds if all do."""
    groups = grouping.of(kind)
    if not groups:
        return check.missing(_UNKNOWN[kind])
    counted = _by_sample(pair, grouping)
    if counted is None:
        return check.missing(f"the metric {pair.after.metric} has no value for a {kind}")
    if pair.is_same:
        return check.same(pair.after.samples)
    return check.defer(lambda levels: _worst(check, counted, groups, levels))


def class_drops(
    report: Report,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
) -> tuple[ClassDrop, ...]:
    """The classes and slices that dropped, of every model and reference, the worst first.

    The intervals hold for all groups of a kind together (Bonferroni): a class whose interval is
    above 0 did drop. At most 50 groups of a kind, those that dropped most clearly. Raises as
    `grouping_of` and `drop_estimate`.
    """
    grouping = grouping_of(report, slices)
    baseline = [report.baseline] if report.baseline else []
    rows = [row for row in report.measurements if row.role == "artifact" and not row.error]
    drops = [
        drop
        for row in (*baseline, *rows)
        for pair in pairs_of(row, report, locked)
        if isinstance(pair, PairedAccuracies) and not pair.is_same
        for drop in _class_drops(row.name, pair, grouping, statistics)
    ]
    return tuple(sorted(drops, key=lambda d: (-d.interval[0], -d.drop, d.model, d.name)))


def _class_drops(
    model: str, pair: PairedAccuracies, grouping: Grouping, statistics: GateStatistics
) -> Iterator[ClassDrop]:
    counted = _by_sample(pair, grouping)
    if counted is None:
        return
    kinds: tuple[Kind, ...] = ("class", "slice")
    for kind in kinds:
        groups = grouping.of(kind)
        drops = {
            name: drop_estimate(counted.before, counted.after, statistics, rows).value
            for name, rows in groups.items()
        }
        dropped = [name for name, drop in drops.items() if drop > 0]
        dropped.sort(key=lambda name: -drops[name] * math.sqrt(len(groups[name])))
        for name in dropped[:_MOST_SHOWN]:
            rows, interval = groups[name], _interval(counted, groups, name)
            if interval is None:
                continue
            yield ClassDrop(
                model=model,
                kind=kind,
                reference=pair.reference,
                name=name,
                samples=len(rows),
                before=_mean_of(counted.before, rows),
                after=_mean_of(counted.after, rows),
                drop=drops[name],
                interval=interval,
            )


def _interval(pair: PairedAccuracies, groups: Groups, name: str) -> tuple[float, float] | None:
    """The interval of the drop of a group, which holds for all groups together."""
    return drop_of(pair.before, pair.after, groups[name], LEVEL / len(groups))[1]


def _worst(check: LimitCheck, pair: PairedAccuracies, groups: Groups, levels: Levels) -> Finding:
    each = levels.shared(len(groups))
    estimates = {
        name: drop_estimate(pair.before, pair.after, check.statistics, rows)
        for name, rows in groups.items()
    }
    outcomes = {name: check.outcome(drop, each) for name, drop in estimates.items()}
    decisive = next(outcome for outcome in _RANKS if outcome in outcomes.values())
    alike = [name for name in groups if outcomes[name] == decisive]
    alike.sort(key=lambda name: (-estimates[name].value, estimates[name].samples))
    worst, *others = alike
    is_shown = others and decisive != "passed"
    reason = f"{decisive} too: {listed(others, _MOST_NAMED)}" if is_shown else ""
    interval = _interval(pair, groups, worst)
    return check.test(estimates[worst], each, interval=interval, subject=worst, reason=reason)


_RANKS: tuple[Outcome, ...] = ("failed", "inconclusive", "passed")


_UNKNOWN: dict[Kind, str] = {
    "class": "the classes of the test samples are not known",
    "slice": "the slices of the test samples are not known",
}


def _by_sample(pair: PairedAccuracies, grouping: Grouping) -> PairedAccuracies | None:
    """The pair by results of each sample, None where the metric has none.

    Predicted classes give right answers where the metric does not count them.
    """
    labels = grouping.labels
    has_classes = len(pair.before.predicted) == len(pair.after.predicted) == len(labels) > 0
    if pair.after.correct:
        return pair
    if has_classes:
        before, after = (_top1(each, labels) for each in (pair.before, pair.after))
        return PairedAccuracies(
            reference=pair.reference, before=before, after=after, is_same=pair.is_same
        )
    return None if pair.after.metric in _OF_ALL else pair


def _top1(accuracy: Accuracy, labels: tuple[int, ...]) -> Accuracy:
    pairs = zip(accuracy.predicted, labels, strict=True)
    correct = "".join("1" if predicted == label else "0" for predicted, label in pairs)
    value = correct.count("1") / len(labels)
    return replace(accuracy, metric="top1", value=value, correct=correct, higher_is_better=True)


def _class_name(label: int, names: tuple[str, ...]) -> str:
    name = names[label] if 0 <= label < len(names) else ""
    return name if name and names.count(name) == 1 else f"{name} {label}".strip()


def _group(names: Sequence[str]) -> Groups:
    groups: Groups = {}
    for index, name in enumerate(names):
        groups.setdefault(name, []).append(index)
    return dict(sorted(groups.items()))


def _mean_of(accuracy: Accuracy, rows: Sequence[int]) -> float:
    values = numbers(accuracy)
    return sum(values[i] for i in rows) / len(rows)
