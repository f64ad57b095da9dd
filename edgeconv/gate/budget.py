"""A report checked against a budget, limit by limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.drops import (
    accuracy_drop,
    flip_rate,
    unlabeled_flip_rate,
    unpaired_drop,
)
from edgeconv.gate.groups import Grouping, grouping_of, worst_drop
from edgeconv.gate.limit_check import LimitCheck, OpenLimit, levels_of
from edgeconv.gate.numbers import own_number
from edgeconv.gate.pairs import PairedAccuracies, pairs_of
from edgeconv.types import NEED_TIMES, Finding, GateStatistics, Limit, Limits, Verdict

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

    Result = Finding | OpenLimit

_USUAL = GateStatistics()


def check(
    report: Report,
    budget: Budget,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
) -> Verdict:
    """Every limit of the budget, checked for every artifact in the report.

    Drops are measured from the trained model and, with `locked`, from the lock; the latter also
    for the trained model. `slices` has the slice of each test sample. An estimate fails where its
    bound is beyond the limit; all such limits together fail wrongly with a probability of at most
    1 - `statistics.confidence`.

    A failed gate is a result, not an error. What was not measured fails: missing and non-finite
    numbers, artifacts that did not run, and recipes with limits or locked models that are not in
    the report. Raises `InputRefused` for a report without artifacts and for slices that do not fit
    it, `UsageError` for a budget without limits and for a method that does not fit the metric.
    """
    artifacts = [each for each in report.measurements if each.role == "artifact"]
    if not artifacts:
        raise InputRefused(
            f"the report {report.title!r} has no artifacts to check",
            hint="measure them with edgeconv bench",
        )
    gate = _Gate(report, budget, statistics, locked, grouping_of(report, slices))
    results = [*gate.of_trained(), *gate.of_artifacts(artifacts), *gate.of_missing(artifacts)]
    if not results:
        raise UsageError("the budget has no limit for any model of the report")
    return Verdict(findings=tuple(_decide(results, statistics)))


def losses(
    report: Report,
    budget: Budget,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel,
    slices: Sequence[str] = (),
) -> tuple[Finding, ...]:
    """The losses against the lock, as findings that fail.

    Every limit on a drop counts, of either severity; without one on the accuracy, a loss of 0.01
    does. The measured accuracy counts, also of too few samples: no loss is accepted unseen. Raises
    as `check`.
    """
    gate = _Gate(report, budget, statistics, locked, grouping_of(report, slices))
    return tuple(
        msgspec.structs.replace(finding, outcome="failed", severity="error")
        for finding in _decide([*gate.against_lock()], statistics)
        if _is_loss(finding)
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


class _Subject(NamedTuple):
    """What a limit is for: a model, its recipe, and the runtime that it was measured in."""

    model: str
    recipe: str = ""
    runtime: str = ""

    @classmethod
    def of(cls, row: Measurement) -> _Subject:
        """A measured model."""
        return cls(row.name, row.recipe or "", row.measured_in)


@dataclass(frozen=True)
class _Gate:
    """A report, and what it is checked against."""

    report: Report
    budget: Budget
    statistics: GateStatistics
    locked: LockedModel | None
    grouping: Grouping

    def of_trained(self) -> Iterator[Result]:
        """The drops of the trained model, from the lock."""
        if self.report.baseline is not None:
            for name, limit in self.budget.limits(None).items():
                if name in _DROPS:
                    yield from self._drops(self.report.baseline, name, limit)

    def of_artifacts(self, artifacts: list[Measurement]) -> Iterator[Result]:
        """All limits of all artifacts."""
        for row in artifacts:
            for name, limit in self._limits(row).items():
                if row.error:
                    yield self._limit_check(_Subject.of(row), name, limit).missing("it did not run")
                elif name in _DROPS:
                    yield from self._drops(row, name, limit)
                else:
                    check = self._limit_check(_Subject.of(row), name, limit)
                    yield own_number(check, row, self.report)

    def _limits(self, row: Measurement) -> dict[str, AnyLimit]:
        """The limits of a row.

        A limit on times is for runtimes that have times, where one of them ran the same file,
        unless it is this runtime's own.
        """
        limits = self.budget.limits(row.recipe, row.measured_in)
        timed = {each.sha256 for each in self.report.measurements if each.latency is not None}
        if row.error or row.latency is not None or row.sha256 not in timed:
            return limits
        own = self.budget.runtime.get(row.measured_in, Limits()).by_name()
        return {n: limit for n, limit in limits.items() if n in own or n not in NEED_TIMES}

    def against_lock(self) -> Iterator[Result]:
        """The limits on drops of all models that ran, only from the lock."""
        artifacts = [row for row in self.report.measurements if row.role == "artifact"]
        trained = [self.report.baseline] if self.report.baseline else []
        for row in (*trained, *artifacts):
            of_row = self.budget.limits(row.recipe, row.measured_in)
            limits = {n: v for n, v in of_row.items() if n in _DROPS}
            if not _OF_ALL_SAMPLES & limits.keys():
                limits |= _default_limit(row)
            if not row.error:
                for name, limit in limits.items():
                    yield from self._drops(row, name, limit, ("lock",))

    def of_missing(self, artifacts: list[Measurement]) -> Iterator[Result]:
        """Recipes and runtimes with limits, and locked models, that are not in the report."""
        recipes = {artifact.recipe for artifact in artifacts}
        runtimes = {artifact.measured_in for artifact in artifacts}
        for subject, limits in (
            *((_Subject(n, n), each) for n, each in self.budget.recipe.items() if n not in recipes),
            *(
                (_Subject(n, runtime=n), each)
                for n, each in self.budget.runtime.items()
                if n not in runtimes
            ),
        ):
            for name, limit in limits.by_name().items():
                yield self._limit_check(subject, name, limit).missing("it is not in the report")
        if self.locked is None:
            return
        for stage in self.locked.stages:
            if not self._is_measured(stage, artifacts):
                subject = _Subject(stage.name, stage.recipe or "", stage.measured_in or "")
                for name, limit in self.budget.limits(stage.recipe, subject.runtime).items():
                    if name in _DROPS:
                        check = self._limit_check(subject, name, limit, "lock")
                        yield check.missing("it is in the lock, and not in the report")

    def _is_measured(self, stage: LockedStage, artifacts: list[Measurement]) -> bool:
        """Whether the report has the model of a locked stage, in any runtime."""
        if stage.role == "baseline":
            return self.report.baseline is not None or stage.name == "checkpoint"
        named = any(row.name == stage.name for row in artifacts)
        return named or any(row.recipe == stage.recipe for row in artifacts if row.recipe)

    def _drops(
        self,
        row: Measurement,
        name: str,
        limit: AnyLimit,
        references: Sequence[Reference] = ("baseline", "lock"),
    ) -> Iterator[Result]:
        for pair in pairs_of(row, self.report, self.locked):
            if pair.reference not in references:
                continue
            reference, after = pair.reference, pair.after
            check = self._limit_check(_Subject.of(row), name, limit, reference, after)
            if isinstance(pair, PairedAccuracies):
                yield _DROPS[name](check, pair, self.grouping)
            elif name == "max-flip-rate":
                yield unlabeled_flip_rate(check, row, pair)
            elif name in _OF_ALL_SAMPLES:
                yield unpaired_drop(check, pair)
            else:
                yield check.missing(pair.reason)

    def _limit_check(
        self,
        subject: _Subject,
        name: str,
        limit: AnyLimit,
        reference: Reference = "",
        accuracy: Accuracy | None = None,
    ) -> LimitCheck:
        measured = (row.accuracy for row in self.report.measurements if row.accuracy)
        accuracy = accuracy or next(measured, None)
        has_unit = name in _OF_THE_METRIC and accuracy is not None and not accuracy.correct
        return LimitCheck(
            model=subject.model,
            name=name,
            limit=limit,
            statistics=self.statistics,
            reference=reference,
            recipe=subject.recipe,
            runtime=subject.runtime,
            metric=accuracy.metric if accuracy and has_unit else "",
        )


def _default_limit(row: Measurement) -> dict[str, AnyLimit]:
    is_share = row.accuracy is None or bool(row.accuracy.correct)
    return {"max-accuracy-drop" if is_share else "max-relative-accuracy-drop": Limit(limit=0.01)}


def _decide(results: Sequence[Result], statistics: GateStatistics) -> Iterator[Finding]:
    """All findings; open limits that can fail the gate share its chance of failing wrongly."""
    alone = levels_of(statistics)
    fatal = sum(isinstance(result, OpenLimit) and result.is_fatal for result in results)
    shared = alone.shared(max(1, fatal))
    for result in results:
        if isinstance(result, Finding):
            yield result
        else:
            yield result.decide(shared if result.is_fatal else alone)


_OF_ALL_SAMPLES = {"max-accuracy-drop", "max-relative-accuracy-drop"}
_OF_THE_METRIC = {"max-accuracy-drop", "min-accuracy", "max-class-drop", "max-slice-drop"}
_DROPS: dict[str, Callable[[LimitCheck, PairedAccuracies, Grouping], Result]] = {
    "max-accuracy-drop": lambda check, pair, _: accuracy_drop(check, pair),
    "max-relative-accuracy-drop": lambda check, pair, _: accuracy_drop(check, pair),
    "max-class-drop": lambda check, pair, known: worst_drop(check, pair, "class", known),
    "max-slice-drop": lambda check, pair, known: worst_drop(check, pair, "slice", known),
    "max-flip-rate": lambda check, pair, _: flip_rate(check, pair),
}
