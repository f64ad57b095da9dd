"""The gate: a report held against a budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused, UsageError
from edgeconv.nouns import Finding, Limits, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.nouns import Budget, Measurement, Report


def check(report: Report, budget: Budget) -> Verdict:
    """Every limit the budget sets, held against every artifact in the report.

    A failed gate is an answer, not an error. What was not measured fails: a number that
    is missing or not finite, all numbers of an artifact that did not run, and a recipe
    that has limits and is not in the report. Raises `InputRefused` for a report without
    artifacts, `UsageError` for a budget without limits.
    """
    artifacts = [each for each in report.measurements if each.role == "artifact"]
    if not artifacts:
        raise InputRefused(
            f"the report {report.title!r} has no artifacts to judge",
            hint="make one with edgeconv bench",
        )
    findings = [
        *(finding for artifact in artifacts for finding in _of_artifact(artifact, budget)),
        *_of_missing_recipes(artifacts, budget),
    ]
    if not findings:
        raise UsageError("the budget sets no limit for anything in the report")
    return Verdict(findings=tuple(findings))


def _of_artifact(artifact: Measurement, budget: Budget) -> Iterator[Finding]:
    allowed = _set_limits(budget.every)
    if artifact.recipe is not None:
        allowed |= _set_limits(budget.recipe.get(artifact.recipe, Limits()))
    for field, limit in allowed.items():
        actual = None if artifact.error else _ACTUAL[field](artifact)
        yield _finding(artifact.name, field, limit, actual)


def _of_missing_recipes(artifacts: list[Measurement], budget: Budget) -> Iterator[Finding]:
    measured = {artifact.recipe for artifact in artifacts}
    for recipe, limits in budget.recipe.items():
        if recipe not in measured:
            for field, limit in _set_limits(limits).items():
                yield _finding(recipe, field, limit, None)


def _finding(model: str, field: str, allowed: float, actual: float | None) -> Finding:
    return Finding(
        model=model,
        limit=_KEBAB[field],
        allowed=allowed,
        actual=actual,
        ok=actual is not None and _holds(field, allowed, actual),
    )


def _holds(field: str, allowed: float, actual: float) -> bool:
    if not math.isfinite(actual):
        return False
    # Limits are inclusive, and 0.91 - 0.90 is a hair over 0.01.
    if math.isclose(actual, allowed, rel_tol=1e-12, abs_tol=1e-12):
        return True
    return actual > allowed if field.startswith("min_") else actual < allowed


def _set_limits(limits: Limits) -> dict[str, float]:
    """The limits that are set, by field, in the order of the noun."""
    values = ((field, getattr(limits, field)) for field in _KEBAB)
    return {field: value for field, value in values if value is not None}


_KEBAB = {field.name: field.encode_name for field in msgspec.structs.fields(Limits)}

_ACTUAL: dict[str, Callable[[Measurement], float | None]] = {
    "max_size_bytes": lambda model: model.size_bytes,
    "max_gzip_size_bytes": lambda model: model.gzip_size_bytes,
    "max_size_ratio": lambda model: model.size_ratio,
    "max_latency_p50_us": lambda model: model.latency.p50_us if model.latency else None,
    "max_latency_ratio": lambda model: model.latency_ratio,
    "max_peak_memory_bytes": lambda model: model.peak_memory_bytes,
    "max_accuracy_drop": lambda model: model.accuracy_drop,
    "min_accuracy": lambda model: model.accuracy.value if model.accuracy else None,
}
