"""What a budget asks of one model, and what is answered."""

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
# How often enough samples leave a number open all the same.
_MISSED = 0.05
_LEAST_SURE = 0.5
_NO_NUMBER = "no number of samples can show that it is 0 at most: allow a little more than 0"


@dataclass(frozen=True)
class OpenLimit:
    """A limit on a number that is left to chance.

    It is answered once it is known how many there are that may fail the gate: `is_fatal`.
    """

    is_fatal: bool
    answer: Callable[[Levels], Finding]


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """One limit of a budget, for one model, beside `reference` if it is about a difference.

    `metric` is the unit of its numbers, "" for shares of right answers.
    """

    model: str
    name: str
    limit: AnyLimit
    statistics: GateStatistics
    reference: Reference = ""
    recipe: str = ""
    metric: str = ""

    @property
    def is_least(self) -> bool:
        """Whether the number must not be below the limit, rather than not above it."""
        return self.name.startswith("min-")

    @property
    def allowed(self) -> float:
        """The limit, where it is a number; else NaN, which nothing keeps to."""
        return float(self.limit.limit) if isinstance(self.limit, Limit) else math.nan

    def defer(self, answer: Callable[[Levels], Finding]) -> OpenLimit:
        """The limit, to be answered later."""
        return OpenLimit(self.limit.severity == "error", answer)

    def missing(self, reason: str = "", actual: Value | None = None) -> Finding:
        """There is no number that could be held against the limit."""
        return self.finding("missing", actual, reason=reason)

    def compare(self, actual: float | None, reason: str = "", subject: str = "") -> Finding:
        """A number that is not left to chance; None and what is not finite is missing."""
        if actual is None or not math.isfinite(actual) or math.isnan(self.allowed):
            return self.missing(reason, actual)
        # Limits are inclusive, and 0.91 - 0.90 is a hair over 0.01.
        is_equal = math.isclose(actual, self.allowed, rel_tol=1e-12, abs_tol=1e-12)
        holds = actual > self.allowed if self.is_least else actual < self.allowed
        return self.finding("passed" if holds or is_equal else "failed", actual, subject=subject)

    def same(self, samples: int | None = None) -> Finding:
        """Nothing is other than in the reference: not even a file, so that nothing is chance."""
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
        """What the estimate says: beyond the limit, within it, or not to be told.

        `interval` is the one that every report shows of the number; the tests need none.
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
        """What the tests say: the one that fails, and the one that holds, each at its level."""
        if self.is_least:
            # Not below the limit is above all that is below it.
            below = math.nextafter(self.allowed, -math.inf)
            is_broken = estimate.is_below(below, levels.fail)
            is_held = estimate.is_above(below, levels.hold)
        else:
            is_broken = estimate.is_above(self.allowed, levels.fail)
            is_held = estimate.is_below(self.allowed, levels.hold)
        return "failed" if is_broken else "passed" if is_held else "inconclusive"

    def finding(self, outcome: Outcome, actual: Value | None, **facts: Any) -> Finding:
        """A finding; what cannot be told may be a warning by choice."""
        is_open = outcome == "inconclusive" and self.statistics.inconclusive == "warn"
        severity: Severity = "warn" if is_open else self.limit.severity
        return Finding(
            model=self.model,
            limit=self.name,
            allowed=self.limit.limit,
            actual=actual,
            outcome=outcome,
            severity=severity,
            reference=self.reference,
            recipe=self.recipe,
            metric=self.metric,
            **facts,
        )


def levels_of(statistics: GateStatistics) -> Levels:
    """How often the gate may be wrong. Raises `UsageError` for a confidence that is none."""
    if not _LEAST_SURE <= statistics.confidence < 1:
        raise UsageError(
            f"a confidence of {statistics.confidence:g} is not between {_LEAST_SURE:g} and 1",
            hint="confidence = 0.95",
        )
    level = 1 - statistics.confidence
    return Levels(level, level, _MISSED)
