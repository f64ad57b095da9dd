"""A report checked against a budget, limit by limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from edgeconv.gate.drops import (
    Grouping,
    PairedAccuracies,
    accuracy_drop,
    baseline_of,
    flip_rate,
    grouping_of,
    pairs_of,
    unlabeled_flip_rate,
    unpaired_drop,
    worst_drop,
)
from edgeconv.gate.numbers import own_number
from edgeconv.reporting.columns import refuse_several_outputs
from edgeconv.statistics.estimate import Estimate, Levels
from edgeconv.types import (
    FULL_INTEGER,
    LIMIT_KINDS,
    Accuracy,
    AnyLimit,
    Budget,
    Drop,
    Finding,
    GateStatistics,
    Limit,
    LimitKind,
    Limits,
    LockedModel,
    LockedStage,
    Measurement,
    Outcome,
    Reference,
    Report,
    Severity,
    Value,
    Verdict,
)
from edgeconv.types.errors import InputRefused, UsageError

_USUAL = GateStatistics()
_OF_ALL_SAMPLES = ("metric", "relative")
Interval = tuple[float, float]
# How often a limit stays undecided with enough samples.
_MISSED = 0.05
_NO_NUMBER = "no number of samples can show that it is at most 0: allow a little more than 0"


def check(
    report: Report,
    budget: Budget,
    *,
    statistics: GateStatistics = _USUAL,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
    guards: bool = True,
) -> Verdict:
    """Every limit of the budget, checked for every artifact in the report.

    Drops are measured from the trained model and, with `locked`, from the lock; the latter also
    for the trained model, whose loss of 0.01 fails with `guards` where the budget has no limit on
    it. `slices` has the slice of each test sample. An estimate fails where its
    bound is beyond the limit; all such limits together fail wrongly with a probability of at most
    1 - `statistics.confidence`.

    A failed gate is a result, not an error. What was not measured fails: missing and non-finite
    numbers, artifacts that did not run, and recipes with limits or locked models that are not in
    the report. Raises `InputRefused` for a report without artifacts and for slices that do not fit
    it, `UsageError` for a budget without limits, for a method that does not fit the metric, and
    for labels of several outputs.
    """
    artifacts = [each for each in report.measurements if each.role == "artifact"]
    if not artifacts:
        raise InputRefused(
            f"the report {report.title!r} has no artifacts to check",
            hint="measure them with edgeconv bench",
        )
    refuse_several_outputs(report)
    gate = _Gate(report, budget, statistics, locked, grouping_of(report, slices))
    trained = [*gate.of_trained(), *(gate.of_loss() if guards else ())]
    results = [*trained, *gate.of_artifacts(artifacts), *gate.of_missing(artifacts)]
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
    if finding.outcome in ("passed", "failed") or finding.kind.drop not in _OF_ALL_SAMPLES:
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

    def of_trained(self) -> Iterator[Finding | OpenLimit]:
        """The drops of the trained model, from the lock."""
        if self.report.baseline is not None:
            for name, limit in _drop_limits(self.budget.limits(None)).items():
                yield from self._drops(self.report.baseline, name, limit)

    def of_loss(self) -> Iterator[OpenLimit]:
        """The loss of the trained model against the lock, where the budget has no limit on it."""
        row = baseline_of(self.report)
        if row is None or any(
            LIMIT_KINDS[name].drop in _OF_ALL_SAMPLES
            for name in self.budget.limits(row.recipe, row.measured_in)
        ):
            return
        for name, limit in _default_limit(row).items():
            for result in self._drops(row, name, limit, ("lock",)):
                if isinstance(result, OpenLimit):
                    yield replace(result, only_failed=True)

    def of_artifacts(self, artifacts: list[Measurement]) -> Iterator[Finding | OpenLimit]:
        """All limits of all artifacts."""
        for row in artifacts:
            for name, limit in self._limits(row).items():
                if row.error:
                    check = self._limit_check(_Subject.of(row), name, limit)
                    yield check.missing(row.error.splitlines()[0])
                elif LIMIT_KINDS[name].drop:
                    yield from self._drops(row, name, limit)
                else:
                    check = self._limit_check(_Subject.of(row), name, limit)
                    yield own_number(check, row, self.report)

    def _limits(self, row: Measurement) -> dict[str, AnyLimit]:
        """The limits of a row.

        A limit on float operators is for full-integer recipes. One on times is for runtimes that
        have times, where one of them ran the same file, unless it is this runtime's own.
        """
        limits = self.budget.limits(row.recipe, row.measured_in)
        if row.recipe and row.recipe not in FULL_INTEGER:
            limits = {n: limit for n, limit in limits.items() if not LIMIT_KINDS[n].of_integers}
        timed = {each.sha256 for each in self.report.measurements if each.latency is not None}
        if row.error or row.latency is not None or row.sha256 not in timed:
            return limits
        own = self.budget.runtime.get(row.measured_in, Limits()).by_name()
        return {
            n: limit for n, limit in limits.items() if n in own or not LIMIT_KINDS[n].needs_times
        }

    def against_lock(self) -> Iterator[Finding | OpenLimit]:
        """The limits on drops of all models that ran, only from the lock."""
        artifacts = [row for row in self.report.measurements if row.role == "artifact"]
        trained = [self.report.baseline] if self.report.baseline else []
        for row in (*trained, *artifacts):
            limits = _drop_limits(self.budget.limits(row.recipe, row.measured_in))
            if not any(LIMIT_KINDS[name].drop in _OF_ALL_SAMPLES for name in limits):
                limits |= _default_limit(row)
            if not row.error:
                for name, limit in limits.items():
                    yield from self._drops(row, name, limit, ("lock",))

    def of_missing(self, artifacts: list[Measurement]) -> Iterator[Finding | OpenLimit]:
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
                allowed = self.budget.limits(stage.recipe, subject.runtime)
                for name, limit in _drop_limits(allowed).items():
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
    ) -> Iterator[Finding | OpenLimit]:
        drop = LIMIT_KINDS[name].drop
        assert drop is not None, "only limits on drops are compared with a reference"
        for pair in pairs_of(row, self.report, self.locked):
            if pair.reference not in references:
                continue
            reference, after = pair.reference, pair.after
            check = self._limit_check(_Subject.of(row), name, limit, reference, after)
            if isinstance(pair, PairedAccuracies):
                yield self._drop(drop, check, pair)
            elif drop == "flips":
                yield unlabeled_flip_rate(check, row, pair)
            elif drop in _OF_ALL_SAMPLES:
                yield unpaired_drop(check, pair)
            else:
                yield check.missing(pair.reason)

    def _drop(self, drop: Drop, check: LimitCheck, pair: PairedAccuracies) -> Finding | OpenLimit:
        if drop == "flips":
            return flip_rate(check, pair)
        if drop == "class" or drop == "slice":
            return worst_drop(check, pair, drop, self.grouping)
        return accuracy_drop(check, pair)

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
        has_unit = LIMIT_KINDS[name].in_metric and accuracy is not None and not accuracy.correct
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


def _drop_limits(limits: dict[str, AnyLimit]) -> dict[str, AnyLimit]:
    return {name: limit for name, limit in limits.items() if LIMIT_KINDS[name].drop}


def _default_limit(row: Measurement) -> dict[str, AnyLimit]:
    is_share = row.accuracy is None or bool(row.accuracy.correct)
    name = "max-accuracy-drop" if is_share else "max-relative-accuracy-drop"
    return {name: LIMIT_KINDS[name].limit(0.01)}


def _decide(
    results: Sequence[Finding | OpenLimit], statistics: GateStatistics
) -> Iterator[Finding]:
    """All findings; open limits that can fail the gate share its chance of failing wrongly."""
    alone = levels_of(statistics)
    fatal = sum(isinstance(result, OpenLimit) and result.is_fatal for result in results)
    shared = alone.shared(max(1, fatal))
    for result in results:
        if isinstance(result, Finding):
            yield result
        else:
            finding = result.decide(shared if result.is_fatal else alone)
            if finding.outcome == "failed" or not result.only_failed:
                yield finding


@dataclass(frozen=True)
class OpenLimit:
    """A limit on an estimate. `decide` it once all limits that can fail the gate are counted.

    `is_fatal`: it can fail the gate. `only_failed`: any other outcome is not a finding.
    """

    is_fatal: bool
    decide: Callable[[Levels], Finding]
    only_failed: bool = False


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """One limit of a budget, for one model, against `reference` where it limits a difference.

    `metric` is the unit of its numbers, "" for shares of right answers.
    """

    model: str
    name: str
    limit: AnyLimit
    statistics: GateStatistics
    reference: Reference = ""
    recipe: str = ""
    runtime: str = ""
    metric: str = ""

    @property
    def kind(self) -> LimitKind:
        """The kind of limit."""
        return LIMIT_KINDS[self.name]

    @property
    def allowed(self) -> float:
        """The limit as a number; else NaN, within which nothing is."""
        return float(self.limit.limit) if isinstance(self.limit, Limit) else math.nan

    def defer(self, decide: Callable[[Levels], Finding]) -> OpenLimit:
        """The limit, to be decided later."""
        return OpenLimit(self.limit.severity == "error", decide)

    def missing(self, reason: str = "", actual: Value | None = None) -> Finding:
        """There is no number to compare with the limit."""
        return self.finding("missing", actual, reason=reason)

    def compare(self, actual: float | None, reason: str = "", subject: str = "") -> Finding:
        """An exact number, without statistics; None and what is not finite is missing."""
        if actual is None or not math.isfinite(actual) or math.isnan(self.allowed):
            return self.missing(reason, actual)
        # Limits are inclusive, and 0.91 - 0.90 is slightly more than 0.01.
        is_equal = math.isclose(actual, self.allowed, rel_tol=1e-12, abs_tol=1e-12)
        holds = actual > self.allowed if self.kind.is_minimum else actual < self.allowed
        return self.finding("passed" if holds or is_equal else "failed", actual, subject=subject)

    def same(self, samples: int | None = None) -> Finding:
        """File and answers equal the reference's: the drop is exactly 0."""
        return self.finding("passed", 0.0, interval=(0.0, 0.0), method="same file", samples=samples)

    def test(
        self,
        estimate: Estimate,
        levels: Levels,
        *,
        interval: Interval | None = None,
        subject: str = "",
        reason: str = "",
    ) -> Finding:
        """Test an estimate against the limit: beyond it, within it, or inconclusive.

        `interval` is the one that every report shows of the number; the tests do not use it.
        """
        outcome = self.outcome(estimate, levels)
        needed = estimate.enough(self.allowed, levels) if outcome == "inconclusive" else None
        if outcome == "inconclusive" and needed is None and self.allowed == 0:
            reason = reason or _NO_NUMBER
        return self.finding(
            outcome,
            estimate.value,
            subject=subject,
            interval=interval,
            confidence=self.statistics.confidence,
            method=estimate.method,
            samples=estimate.samples,
            samples_needed=needed,
            reason=reason,
        )

    def outcome(self, estimate: Estimate, levels: Levels) -> Outcome:
        """The results of both tests, for failing and for holding, each at its level."""
        if self.kind.is_minimum:
            # Not below the limit is above all numbers below it.
            below = math.nextafter(self.allowed, -math.inf)
            is_broken = estimate.is_below(below, levels.fail)
            is_held = estimate.is_above(below, levels.hold)
        else:
            is_broken = estimate.is_above(self.allowed, levels.fail)
            is_held = estimate.is_below(self.allowed, levels.hold)
        return "failed" if is_broken else "passed" if is_held else "inconclusive"

    def finding(self, outcome: Outcome, actual: Value | None, **fields: Any) -> Finding:
        """A finding; an inconclusive one is a warning where the statistics say so."""
        is_warning = outcome == "inconclusive" and self.statistics.inconclusive == "warn"
        severity: Severity = "warn" if is_warning else self.limit.severity
        return Finding(
            model=self.model,
            limit=self.name,
            allowed=self.limit.limit,
            actual=actual,
            outcome=outcome,
            severity=severity,
            reference=self.reference,
            recipe=self.recipe,
            runtime=self.runtime,
            metric=self.metric,
            **fields,
        )


def levels_of(statistics: GateStatistics) -> Levels:
    """How often the gate may be wrong."""
    level = 1 - statistics.confidence
    return Levels(level, level, _MISSED)
