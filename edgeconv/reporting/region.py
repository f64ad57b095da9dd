"""What a budget allows, as a corner of a plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types import Measurement, Report


@dataclass(frozen=True, kw_only=True)
class BudgetRegion:
    """The most that a model may cost and the least that it must be worth; None has no limit."""

    most_cost: float | None = None
    least_value: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to shade."""
        return self.most_cost is not None or self.least_value is not None


def size_region(report: Report) -> BudgetRegion:
    """By size and accuracy. Of limits that differ between models it is the loosest one."""
    base = report.baseline.size_bytes if report.baseline else None
    ratio = _loosest(report, "max-size-ratio", max)
    return BudgetRegion(
        most_cost=_least(
            _loosest(report, "max-size-bytes", max),
            ratio * base if ratio is not None and base is not None else None,
        ),
        least_value=_accuracy(report),
    )


def latency_region(report: Report) -> BudgetRegion:
    """By median latency and accuracy."""
    base = _float_p50_us(report.measurements)
    ratio = _loosest(report, "max-latency-ratio", max)
    return BudgetRegion(
        most_cost=_least(
            _loosest(report, "max-latency-p50-us", max),
            ratio * base if ratio is not None and base is not None else None,
        ),
        least_value=_accuracy(report),
    )


def _accuracy(report: Report) -> float | None:
    """The lowest accuracy that is allowed; None where less of the metric is better."""
    baseline = report.baseline.accuracy if report.baseline else None
    drop = _loosest(report, "max-accuracy-drop", max)
    below = baseline.value - drop if drop is not None and baseline else None
    found = [v for v in (_loosest(report, "min-accuracy", min), below) if v is not None]
    if baseline and not baseline.higher_is_better:
        return None
    return max(found, default=None)


def _loosest(report: Report, limit: str, of: Callable[[list[float]], float]) -> float | None:
    """The limit's loosest value; None where some model is not held to it."""
    findings = report.verdict.findings if report.verdict else ()
    named = [f for f in findings if f.limit.replace("_", "-") == limit]
    allowed = [f.allowed for f in named if isinstance(f.allowed, float | int)]
    held = {f.model for f in named}
    judged = {f.model for f in findings}
    return of(allowed) if allowed and held == judged else None


def _float_p50_us(models: tuple[Measurement, ...]) -> float | None:
    found = (m.latency.p50_us for m in models if m.recipe == "float32" and m.latency)
    return next(found, None)


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)
