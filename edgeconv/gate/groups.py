"""The drops of each class and each slice of the test samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.gate.drops import drop_estimate, numbers
from edgeconv.gate.pairs import PairedAccuracies, pairs_of
from edgeconv.statistics.estimate import LEVEL
from edgeconv.statistics.paired import drop_of
from edgeconv.types import ClassDrop, GateStatistics
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.limit_check import LimitCheck, OpenLimit
    from edgeconv.statistics.estimate import Levels
    from edgeconv.types import Accuracy, Finding, LockedModel, Outcome, Report

Kind = Literal["class", "slice"]
Groups = dict[str, list[int]]

# Their numbers are parts of a metric of all samples, which a group of samples does not have.
_OF_ALL = frozenset({"auc", "f1", "masked_accuracy", "perplexity"})
_MOST_NAMED = 5
_MOST_SHOWN = 50
_USUAL = GateStatistics()


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
    return msgspec.structs.replace(
        accuracy, metric="top1", value=value, correct=correct, higher_is_better=True
    )


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
