"""The drop of each class, and of each slice of the test samples."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.gate.limit_check import LimitCheck, OpenLimit
    from edgeconv.statistics.estimate import Levels
    from edgeconv.types import Accuracy, Finding, LockedModel, Outcome, Report

Kind = Literal["class", "slice"]
Groups = dict[str, list[int]]

# Their numbers are what a sample adds to a metric of all samples, which no part of them has.
_OF_ALL = frozenset({"auc", "f1", "masked_accuracy", "perplexity"})
_MOST_NAMED = 5
_MOST_SHOWN = 50
_USUAL = GateStatistics()


@dataclass(frozen=True)
class Grouping:
    """The test samples by class, and by slice: their indices, by name, in order of the names."""

    labels: tuple[int, ...]
    classes: Groups
    slices: Groups

    def of(self, kind: Kind) -> Groups:
        """The groups of this kind; none where they are not known."""
        return self.classes if kind == "class" else self.slices


def grouping_of(report: Report, slices: Sequence[str]) -> Grouping:
    """How the samples of a report are grouped. Raises `InputRefused` for too many or few slices."""
    samples = report.data.samples if report.data else len(report.labels)
    if slices and len(slices) != samples:
        raise InputRefused(
            f"there are {len(slices)} slices for {samples} test samples",
            hint="give one line for each sample, in the order of the data",
        )
    classes = {label: _class_name(label, report.class_names) for label in set(report.labels)}
    known = [classes[label] for label in report.labels]
    return Grouping(report.labels, _grouped(known), _grouped(slices))


def worst_drop(
    check: LimitCheck, pair: PairedAccuracies, kind: Kind, grouping: Grouping
) -> Finding | OpenLimit:
    """The drop of the worst group: it fails where one group does, and holds where all do."""
    groups = grouping.of(kind)
    if not groups:
        return check.missing(_UNKNOWN[kind])
    counted = _of_parts(pair, grouping)
    if counted is None:
        return check.missing(f"the metric {pair.after.metric} has no value of a {kind}")
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
    """The classes and slices that dropped, of every model beside every reference, worst first.

    The intervals hold for all groups of a kind together (Bonferroni): so a class whose interval is
    above 0 did drop. Of very many classes the 50 that dropped most clearly. Raises as
    `grouping_of` and `drop_estimate`.
    """
    grouping = grouping_of(report, slices)
    baseline = [report.baseline] if report.baseline else []
    rows = [row for row in report.measurements if row.role == "artifact" and not row.error]
    found = [
        drop
        for row in (*baseline, *rows)
        for pair in pairs_of(row, report, locked)
        if isinstance(pair, PairedAccuracies) and not pair.is_same
        for drop in _dropped(row.name, pair, grouping, statistics)
    ]
    return tuple(sorted(found, key=lambda one: (-one.interval[0], -one.drop, one.model, one.name)))


def _dropped(
    model: str, pair: PairedAccuracies, grouping: Grouping, statistics: GateStatistics
) -> Iterator[ClassDrop]:
    counted = _of_parts(pair, grouping)
    kinds: tuple[Kind, ...] = ("class", "slice")
    for kind in kinds if counted else ():
        assert counted is not None
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
                # Of a lone number that is no right answer nothing can be said.
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
    """The one interval of the drop of a group, which holds for all of them together."""
    return drop_of(pair.before, pair.after, groups[name], LEVEL / len(groups))[1]


def _worst(check: LimitCheck, pair: PairedAccuracies, groups: Groups, levels: Levels) -> Finding:
    each = levels.shared(len(groups))
    estimate = {
        name: drop_estimate(pair.before, pair.after, check.statistics, rows)
        for name, rows in groups.items()
    }
    outcomes = {name: check.outcome(one, each) for name, one in estimate.items()}
    decisive = next(outcome for outcome in _RANKS if outcome in outcomes.values())
    alike = [name for name in groups if outcomes[name] == decisive]
    alike.sort(key=lambda name: (-estimate[name].value, estimate[name].samples))
    reason = _named(decisive, alike[1:]) if decisive != "passed" else ""
    worst = alike[0]
    interval = _interval(pair, groups, worst)
    return check.test(estimate[worst], each, interval=interval, subject=worst, reason=reason)


def _named(outcome: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{outcome} too: {', '.join(names[:_MOST_NAMED])}{more}"


_RANKS: tuple[Outcome, ...] = ("failed", "inconclusive", "passed")
_UNKNOWN: dict[Kind, str] = {
    "class": "the classes of the test samples are not known",
    "slice": "the slices of the test samples are not given",
}


def _of_parts(pair: PairedAccuracies, grouping: Grouping) -> PairedAccuracies | None:
    """The pair by right answers, where a part of the samples has a value; None where it has none.

    Where the metric does not count them, the classes that are said do.
    """
    labels = grouping.labels
    has_classes = len(pair.before.predicted) == len(pair.after.predicted) == len(labels) > 0
    if pair.after.correct:
        return pair
    if has_classes:
        before, after = (_right(one, labels) for one in (pair.before, pair.after))
        return PairedAccuracies(
            reference=pair.reference, before=before, after=after, is_same=pair.is_same
        )
    return None if pair.after.metric in _OF_ALL else pair


def _right(accuracy: Accuracy, labels: tuple[int, ...]) -> Accuracy:
    said = zip(accuracy.predicted, labels, strict=True)
    correct = "".join("1" if one == label else "0" for one, label in said)
    value = correct.count("1") / len(labels)
    return msgspec.structs.replace(
        accuracy, metric="top1", value=value, correct=correct, higher_is_better=True
    )


def _class_name(label: int, names: tuple[str, ...]) -> str:
    """Its name where it is known, and no other class has it; else its number."""
    name = names[label] if 0 <= label < len(names) else ""
    return name if name and names.count(name) == 1 else f"{name} {label}".strip()


def _grouped(names: Sequence[str]) -> Groups:
    found: Groups = {}
    for index, name in enumerate(names):
        found.setdefault(name, []).append(index)
    return dict(sorted(found.items()))


def _mean_of(accuracy: Accuracy, rows: Sequence[int]) -> float:
    values = numbers(accuracy)
    return sum(values[i] for i in rows) / len(rows)
