"""The gate: a report held against a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate import groups
from edgeconv.gate.asked import Asked, Question, levels_of
from edgeconv.gate.drops import (
    accuracy_drop,
    flip_rate,
    relative_drop,
    unlabelled_flip_rate,
)
from edgeconv.gate.groups import Grouping, grouping_of, worst_drop
from edgeconv.gate.numbers import own_number
from edgeconv.gate.pairs import Pair, pairs_of
from edgeconv.nouns import Finding, Judging, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from edgeconv.nouns import (
        AnyLimit,
        Budget,
        ClassDrop,
        LockedModel,
        Measurement,
        Reference,
        Report,
    )

    Held = Finding | Question

_USUAL = Judging()


def check(
    report: Report,
    budget: Budget,
    *,
    judging: Judging = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
) -> Verdict:
    """Every limit the budget sets, held against every artifact in the report.

    A drop is held against the trained model, and with `locked` against what was accepted: that
    of the trained model too. `slices` names the slice of each test sample. What is left to
    chance fails where its bound is beyond the limit, and all such limits of a report together
    fail wrongly at most as often as `judging.confidence` leaves over.

    A failed gate is an answer, not an error. What was not measured fails: a number that
    is missing or not finite, all numbers of an artifact that did not run, and a recipe
    that has limits, or a locked artifact, that is not in the report. Raises `InputRefused` for a
    report without artifacts and for slices that do not fit it, `UsageError` for a budget without
    limits and for a method that does not fit the metric.
    """
    artifacts = [each for each in report.measurements if each.role == "artifact"]
    if not artifacts:
        raise InputRefused(
            f"the report {report.title!r} has no artifacts to judge",
            hint="make one with edgeconv bench",
        )
    gate = _Gate(report, budget, judging, locked, grouping_of(report, slices))
    held = [*gate.of_trained(), *gate.of_artifacts(artifacts), *gate.of_missing(artifacts)]
    if not held:
        raise UsageError("the budget sets no limit for anything in the report")
    return Verdict(findings=tuple(_with_metric(_answered(held, judging), report)))


def class_drops(
    report: Report,
    *,
    judging: Judging = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
) -> tuple[ClassDrop, ...]:
    """The classes and slices that dropped, of every model beside every reference, worst first.

    Raises as `check`.
    """
    return groups.class_drops(report, judging=judging, locked=locked, slices=slices)


@dataclass(frozen=True)
class _Gate:
    """A report and all that it is judged by."""

    report: Report
    budget: Budget
    judging: Judging
    locked: LockedModel | None
    grouping: Grouping

    def of_trained(self) -> Iterator[Held]:
        """The trained model beside the lock: its drops."""
        if self.report.baseline is not None:
            for name, limit in self.budget.limits(None).items():
                if name in _BESIDE:
                    yield from self._beside(self.report.baseline, name, limit)

    def of_artifacts(self, artifacts: list[Measurement]) -> Iterator[Held]:
        """All limits of all artifacts."""
        for row in artifacts:
            for name, limit in self.budget.limits(row.recipe).items():
                if row.error:
                    yield self._asked(row.name, name, limit).missing("it did not run")
                elif name in _BESIDE:
                    yield from self._beside(row, name, limit)
                else:
                    yield own_number(self._asked(row.name, name, limit), row, self.report)

    def of_missing(self, artifacts: list[Measurement]) -> Iterator[Held]:
        """What has limits, or is locked, and is not in the report."""
        measured = {artifact.recipe for artifact in artifacts}
        for recipe, limits in self.budget.recipe.items():
            if recipe not in measured:
                for name, limit in limits.given().items():
                    yield self._asked(recipe, name, limit).missing("it is not in the report")
        if self.locked is None:
            return
        found = {id(self.locked.stage_of(row)) for row in artifacts}
        for stage in self.locked.stages:
            if stage.role == "artifact" and id(stage) not in found:
                for name, limit in self.budget.limits(stage.recipe).items():
                    if name in _BESIDE:
                        asked = self._asked(stage.name, name, limit, "lock")
                        yield asked.missing("it is in the lock, and not in the report")

    def _beside(self, row: Measurement, name: str, limit: AnyLimit) -> Iterator[Held]:
        for pair in pairs_of(row, self.report, self.locked):
            asked = self._asked(row.name, name, limit, pair.reference)
            if isinstance(pair, Pair):
                yield _BESIDE[name](asked, pair, self.grouping)
            elif name == "max-flip-rate":
                yield unlabelled_flip_rate(asked, row, pair)
            else:
                yield asked.missing(pair.reason)

    def _asked(self, model: str, name: str, limit: AnyLimit, reference: Reference = "") -> Asked:
        return Asked(model=model, name=name, limit=limit, judging=self.judging, reference=reference)


def _with_metric(findings: Iterable[Finding], report: Report) -> Iterator[Finding]:
    """The findings, those in the unit of a metric with its name, where it counts nothing."""
    measured = [row.accuracy for row in report.measurements if row.accuracy]
    counted = any(accuracy.correct for accuracy in measured)
    metric = measured[0].metric if measured and not counted else ""
    for finding in findings:
        is_of_it = metric and finding.limit in _OF_THE_METRIC
        yield msgspec.structs.replace(finding, metric=metric) if is_of_it else finding


def _answered(held: Sequence[Held], judging: Judging) -> Iterator[Finding]:
    """Everything answered: those left to chance that may fail the gate share how often it may."""
    alone = levels_of(judging)
    questions = [one for one in held if not isinstance(one, Finding)]
    fatal = alone.shared(max(1, sum(one.is_fatal for one in questions)))
    for one in held:
        yield one if isinstance(one, Finding) else one.answer(fatal if one.is_fatal else alone)


_OF_THE_METRIC = {"max-accuracy-drop", "min-accuracy", "max-class-drop", "max-slice-drop"}
_BESIDE: dict[str, Callable[[Asked, Pair, Grouping], Held]] = {
    "max-accuracy-drop": lambda asked, pair, _: accuracy_drop(asked, pair),
    "max-relative-accuracy-drop": lambda asked, pair, _: relative_drop(asked, pair),
    "max-class-drop": lambda asked, pair, known: worst_drop(asked, pair, "class", known),
    "max-slice-drop": lambda asked, pair, known: worst_drop(asked, pair, "slice", known),
    "max-flip-rate": lambda asked, pair, _: flip_rate(asked, pair),
}
