"""One limit of a budget, checked for one model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgeconv.errors import UsageError
from edgeconv.statistics.estimate import Levels
from edgeconv.types import Finding, Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.statistics.estimate import Estimate
    from edgeconv.types import AnyLimit, GateStatistics, Outcome, Reference, Severity, Value

Interval = tuple[float, float]
# How often a limit stays undecided with enough samples.
_MISSED = 0.05
_LEAST_CONFIDENCE = 0.5
_NO_NUMBER = "no number of samples can show that it is at most 0: allow a little more than 0"


@dataclass(frozen=True)
class OpenLimit:
    """A limit on an estimate. `decide` it once all limits that can fail the gate are counted.

    `is_fatal`: it can fail the gate.
    """

    is_fatal: bool
    decide: Callable[[Levels], Finding]


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
    def is_minimum(self) -> bool:
        """Whether the number must not be below the limit, rather than not above it."""
        return self.name.startswith("min-")

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
        holds = actual > self.allowed if self.is_minimum else actual < self.allowed
        return self.finding("passed" if holds or is_equal else "failed", actual, subject=subject)

    def same(self, samples: int | None = None) -> Finding:
        """The file and its answers are those of the reference: the drop is exactly 0."""
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
        if self.is_minimum:
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
    """How often the gate may be wrong. Raises `UsageError` for an impossible confidence."""
    if not _LEAST_CONFIDENCE <= statistics.confidence < 1:
        raise UsageError(
            f"a confidence of {statistics.confidence:g} is not between {_LEAST_CONFIDENCE:g} and 1",
            hint="confidence = 0.95",
        )
    level = 1 - statistics.confidence
    return Levels(level, level, _MISSED)
