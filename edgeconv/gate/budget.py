"""A report held against a budget, limit by limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.drops import (
    accuracy_drop,
    flip_rate,
    relative_drop,
    unlabelled_flip_rate,
    unpaired_drop,
)
from edgeconv.gate.groups import Grouping, grouping_of, worst_drop
from edgeconv.gate.limit_check import LimitCheck, OpenLimit, levels_of
from edgeconv.gate.numbers import own_number
from edgeconv.gate.pairs import PairedAccuracies, pairs_of
from edgeconv.types import Finding, GateStatistics, Limit, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.types import (
        Accuracy,
        AnyLimit,
        Budget,
        LockedModel,
        LockedStage,
        Measurement,
        Reference,
        Report,
    )

    Held = Finding | OpenLimit

_USUAL = GateStatistics()


def check(
    report: Report,
    budget: Budget,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
) -> Verdict:
    """Every limit the budget sets, held against every artifact in the report.

    A drop is held against the trained model, and with `locked` against what was accepted: that
    of the trained model too. `slices` names the slice of each test sample. What is left to
    chance fails where its bound is beyond the limit, and all such limits of a report together
    fail wrongly at most as often as `statistics.confidence` leaves over.

    A failed gate is an answer, not an error. What was not measured fails: a number that
    is missing or not finite, all numbers of an artifact that did not run, and a recipe
    that has limits, or a locked model, that is not in the report. Raises `InputRefused` for a
    report without artifacts and for slices that do not fit it, `UsageError` for a budget without
    limits and for a method that does not fit the metric.
    """
    artifacts = [each for each in report.measurements if each.role == "artifact"]
    if not artifacts:
        raise InputRefused(
            f"the report {report.title!r} has no artifacts to judge",
            hint="make one with edgeconv bench",
        )
    gate = _Gate(report, budget, statistics, locked, grouping_of(report, slices))
    held = [*gate.of_trained(), *gate.of_artifacts(artifacts), *gate.of_missing(artifacts)]
    if not held:
        raise UsageError("the budget sets no limit for anything in the report")
    return Verdict(findings=tuple(_answered(held, statistics)))


def losses(
    report: Report,
    budget: Budget,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel,
    slices: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """What the report has lost beside the lock, as findings that fail; empty where nothing.

    Every limit on a drop counts, whatever its severity, and where the budget has none on the
    accuracy, a loss of a hundredth does. The accuracy counts as it was measured: too few samples
    are no reason to accept a loss unseen. Raises as `check`.
    """
    gate = _Gate(report, budget, statistics, locked, grouping_of(report, slices))
    found = _answered([*gate.beside_lock()], statistics)
    return tuple(
        msgspec.structs.replace(one, outcome="failed", severity="error")
        for one in found
        if _is_loss(one)
    )


def _is_loss(finding: Finding) -> bool:
    if finding.outcome in ("passed", "failed") or finding.limit not in _OF_ALL_SAMPLES:
        return finding.outcome == "failed"
    actual, allowed = finding.actual, finding.allowed
    return (
        finding.outcome == "inconclusive"
        and isinstance(actual, int | float)
        and isinstance(allowed, int | float)
        and actual > allowed
    )


@dataclass(frozen=True)
class _Gate:
    """A report and all that it is judged by."""

    report: Report
    budget: Budget
    statistics: GateStatistics
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
                    yield self._limit_check(row.name, row.recipe, name, limit).missing(
                        "it did not run"
                    )
                elif name in _BESIDE:
                    yield from self._beside(row, name, limit)
                else:
                    yield own_number(
                        self._limit_check(row.name, row.recipe, name, limit), row, self.report
                    )

    def beside_lock(self) -> Iterator[Held]:
        """The limits on drops of all models that ran, beside the lock alone."""
        artifacts = [row for row in self.report.measurements if row.role == "artifact"]
        trained = [self.report.baseline] if self.report.baseline else []
        for row in (*trained, *artifacts):
            limits = {n: one for n, one in self.budget.limits(row.recipe).items() if n in _BESIDE}
            if not _OF_ALL_SAMPLES & limits.keys():
                limits |= _default_limit(row)
            if not row.error:
                for name, limit in limits.items():
                    yield from self._beside(row, name, limit, ("lock",))

    def of_missing(self, artifacts: list[Measurement]) -> Iterator[Held]:
        """What has limits, or is locked, and is not in the report."""
        measured = {artifact.recipe for artifact in artifacts}
        for recipe, limits in self.budget.recipe.items():
            if recipe not in measured:
                for name, limit in limits.given().items():
                    check = self._limit_check(recipe, recipe, name, limit)
                    yield check.missing("it is not in the report")
        if self.locked is None:
            return
        for stage in self.locked.stages:
            if not self._is_measured(stage, artifacts):
                for name, limit in self.budget.limits(stage.recipe).items():
                    if name in _BESIDE:
                        check = self._limit_check(stage.name, stage.recipe, name, limit, "lock")
                        yield check.missing("it is in the lock, and not in the report")

    def _is_measured(self, stage: LockedStage, artifacts: list[Measurement]) -> bool:
        """Whether something in the report is compared with what is locked, in any runtime."""
        if stage.role == "baseline":
            return self.report.baseline is not None or stage.name == "checkpoint"
        named = any(row.name == stage.name for row in artifacts)
        return named or any(row.recipe == stage.recipe for row in artifacts if row.recipe)

    def _beside(
        self,
        row: Measurement,
        name: str,
        limit: AnyLimit,
        references: Sequence[Reference] = ("baseline", "lock"),
    ) -> Iterator[Held]:
        for pair in pairs_of(row, self.report, self.locked):
            if pair.reference not in references:
                continue
            reference, after = pair.reference, pair.after
            check = self._limit_check(row.name, row.recipe, name, limit, reference, after)
            if isinstance(pair, PairedAccuracies):
                yield _BESIDE[name](check, pair, self.grouping)
            elif name == "max-flip-rate":
                yield unlabelled_flip_rate(check, row, pair)
            elif name in _OF_ALL_SAMPLES:
                yield unpaired_drop(check, pair)
            else:
                yield check.missing(pair.reason)

    def _limit_check(
        self,
        model: str,
        recipe: str | None,
        name: str,
        limit: AnyLimit,
        reference: Reference = "",
        accuracy: Accuracy | None = None,
    ) -> LimitCheck:
        measured = (row.accuracy for row in self.report.measurements if row.accuracy)
        accuracy = accuracy or next(measured, None)
        is_of_it = name in _OF_THE_METRIC and accuracy is not None and not accuracy.correct
        return LimitCheck(
            model=model,
            name=name,
            limit=limit,
            statistics=self.statistics,
            reference=reference,
            recipe=recipe or "",
            metric=accuracy.metric if accuracy and is_of_it else "",
        )


def _default_limit(row: Measurement) -> dict[str, AnyLimit]:
    """What a team that has no limit on the accuracy surely would not accept unseen."""
    is_share = row.accuracy is None or bool(row.accuracy.correct)
    return {"max-accuracy-drop" if is_share else "max-relative-accuracy-drop": Limit(limit=0.01)}


def _answered(held: Sequence[Held], statistics: GateStatistics) -> Iterator[Finding]:
    """Everything answered: those left to chance that may fail the gate share how often it may."""
    alone = levels_of(statistics)
    questions = [one for one in held if not isinstance(one, Finding)]
    fatal = alone.shared(max(1, sum(one.is_fatal for one in questions)))
    for one in held:
        yield one if isinstance(one, Finding) else one.answer(fatal if one.is_fatal else alone)


_OF_ALL_SAMPLES = {"max-accuracy-drop", "max-relative-accuracy-drop"}
_OF_THE_METRIC = {"max-accuracy-drop", "min-accuracy", "max-class-drop", "max-slice-drop"}
_BESIDE: dict[str, Callable[[LimitCheck, PairedAccuracies, Grouping], Held]] = {
    "max-accuracy-drop": lambda check, pair, _: accuracy_drop(check, pair),
    "max-relative-accuracy-drop": lambda check, pair, _: relative_drop(check, pair),
    "max-class-drop": lambda check, pair, known: worst_drop(check, pair, "class", known),
    "max-slice-drop": lambda check, pair, known: worst_drop(check, pair, "slice", known),
    "max-flip-rate": lambda check, pair, _: flip_rate(check, pair),
}
