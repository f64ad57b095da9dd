"""The limits of a budget in words: what was allowed, what was there, and who broke what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgeconv.report import units

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.nouns import Finding, Verdict

Mark = Literal["ok", "over", "–"]

_MOST_DIGITS = 12


def mark_of(model: str, verdict: Verdict | None) -> Mark:
    """The budget mark of a model: "ok" or "over", and "–" where no limit was held to it."""
    found = (
        [finding.ok for finding in verdict.findings if finding.model == model] if verdict else []
    )
    if not found:
        return "–"
    return "ok" if all(found) else "over"


def in_words(finding: Finding) -> tuple[str, str]:
    """The allowed and the actual value, with a unit, precise enough to tell them apart."""
    relation = "≥" if _plain_limit(finding).startswith("min") else "≤"
    form = _form_of(_plain_limit(finding))
    digits = 3
    if finding.actual is not None and finding.actual != finding.allowed:
        while digits < _MOST_DIGITS and form(finding.allowed, digits) == form(
            finding.actual, digits
        ):
            digits += 1
    return f"{relation} {form(finding.allowed, digits)}", form(finding.actual, digits)


def closing_line(verdict: Verdict | None) -> str:
    """One sentence for the whole verdict."""
    if verdict is None:
        return "No budget was checked."
    total = len(verdict.findings)
    if total == 0:
        return "The budget held no model to any limit, so nothing was judged."
    broken = [finding for finding in verdict.findings if not finding.ok]
    if not broken:
        return f"{_limits(total)} {'holds' if total == 1 else 'hold'}."
    models = ", ".join(dict.fromkeys(units.plain(finding.model) for finding in broken))
    return f"{len(broken)} of {_limits(total)} broken, by {models}."


def _limits(count: int) -> str:
    return f"{count} limit" if count == 1 else f"{count} limits"


def _plain_limit(finding: Finding) -> str:
    return finding.limit.replace("_", "-")


def _form_of(limit: str) -> Callable[[float | None, int], str]:
    """The way to write a limit's values, given significant digits."""
    if limit.endswith("-bytes"):
        return units.size
    if limit.endswith("-us"):
        return units.duration
    if limit.endswith("-ratio"):
        return units.times
    if limit.endswith("-accuracy-drop"):
        return lambda value, digits: units.points(value, digits - 1)
    if limit.endswith("-accuracy"):
        return lambda value, digits: units.percent(value, digits - 1)
    return lambda value, digits: units.ABSENT if value is None else units.significant(value, digits)
