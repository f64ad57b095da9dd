"""What every format says of the checks, as harmless text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from edgeconv.reporting import units
from edgeconv.reporting.limits import Word, closing_line, confidence, word_of
from edgeconv.reporting.values import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import AcceptedDrop, Check, Checked, Finding

_ORDER: tuple[Word, ...] = ("FAIL", "–", "?", "WARN", "PASS")


def worst_first(check: Check) -> list[Finding]:
    """The findings: what fails the gate, then warnings, then what holds; the worst first of each.

    What is broken comes before what was not measured and what cannot be told, and all else is in
    the order of the budget.
    """

    def rank(finding: Finding) -> tuple[bool, bool, int]:
        return finding.ok, finding.outcome == "passed", _ORDER.index(word_of(finding))

    return sorted(check.verdict.findings, key=rank)


def unheld(checked: Checked) -> Iterator[tuple[Check, Finding]]:
    """All that does not hold, of every check: what fails first, then what is only warned of."""
    for is_ok in (False, True):
        for check in checked.checks:
            for finding in check.verdict.findings:
                if finding.outcome != "passed" and finding.ok == is_ok:
                    yield check, finding


def level_of(finding: Finding) -> Literal["error", "warning"]:
    """How hosts of code call what fails the gate, and what it only warns of."""
    return "warning" if finding.ok else "error"


def headline(check: Check) -> str:
    """One line for a check: its name, and how many limits hold."""
    return f"{units.plain(check.name)}: {closing_line(check.verdict)}"


def closing(checked: Checked) -> str:
    """One line for all checks: how many models, and which of them fail."""
    total = units.counted(len(checked.checks), "model")
    if not checked.checks:
        return "No model was checked."
    broken = [units.plain(check.name) for check in checked.checks if not check.verdict.ok]
    if broken:
        return f"{len(broken)} of {total}: {', '.join(broken)}."
    return f"{total} within budget."


def file_of(checked: Checked) -> str:
    """The configuration, from the top of the repository where a CI job says what that is.

    Hosts know the files of a repository by their paths from there.
    """
    top = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    if not top or not checked.config:
        return checked.config
    path = os.path.relpath(checked.config, top)
    return checked.config if path.startswith(os.pardir) else path


def judging_line(check: Check) -> str:
    """How numbers that are left to chance were judged."""
    statistics = check.statistics
    drawn = "" if statistics.method == "mcnemar" else f", {statistics.resamples} resamples"
    means = "an error" if statistics.inconclusive == "error" else "a warning"
    return (
        f"judged at {confidence(statistics.confidence)}, method "
        f"{statistics.method}{drawn}, seed {statistics.seed}; inconclusive is {means}"
    )


def remarks(check: Check) -> Iterator[str]:
    """What else there is to say of a check, a line each, the most important first."""
    yield from (f"changed: {units.plain(change)}" for change in check.changes)
    yield from map(_accepted, check.accepted)
    yield from (f"note: {units.plain(note)}" for note in check.notes)
    if check.reused:
        yield "note: nothing changed, so this is the answer of the last time"


def _accepted(drop: AcceptedDrop) -> str:
    before, after = (value_of(drop.metric, value) for value in (drop.before, drop.after))
    return (
        f"accepted: {units.plain(drop.stage)} from {before} to {after} on {units.plain(drop.date)} "
        f"by `{units.plain(drop.command)}`"
    )
