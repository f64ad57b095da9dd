"""Texts and tables of a check that every format has, as harmless text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from edgeconv.reporting import units
from edgeconv.reporting.limits import Word, closing_line, confidence, word_of
from edgeconv.reporting.tables import Column, Table, table
from edgeconv.reporting.units import Interval, drop_value, interval_value, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import AcceptedDrop, Check, Checked, ClassDrop, Finding, StageState


_ORDER: tuple[Word, ...] = ("FAIL", "–", "?", "WARN", "PASS")


def worst_first(check: Check) -> list[Finding]:
    """The findings: failures, then warnings, then what holds, each in the order of the budget.

    Broken limits come before those that were not measured and inconclusive ones.
    """

    def rank(finding: Finding) -> tuple[bool, bool, int]:
        return finding.ok, finding.outcome == "passed", _ORDER.index(word_of(finding))

    return sorted(check.verdict.findings, key=rank)


def broken_findings(checked: Checked) -> Iterator[tuple[Check, Finding]]:
    """All findings that do not hold: failures first, then warnings."""
    for is_ok in (False, True):
        for check in checked.checks:
            for finding in check.verdict.findings:
                if finding.outcome != "passed" and finding.ok == is_ok:
                    yield check, finding


def level_of(finding: Finding) -> Literal["error", "warning"]:
    """The level of a finding as GitHub and GitLab name it."""
    return "warning" if finding.ok else "error"


def headline(check: Check) -> str:
    """One line for a check: its name, the outcome of its limits, and what guards it."""
    return f"{units.plain(check.name)}: {_guarded(closing_line(check.verdict), [check])}"


def closing(checked: Checked) -> str:
    """One line for all checks: the number of models, and which of them fail."""
    total = units.counted(len(checked.checks), "model")
    if not checked.checks:
        return "No model was checked."
    broken = [units.plain(check.name) for check in checked.checks if not check.verdict.ok]
    if broken:
        return f"{len(broken)} of {total}: {', '.join(broken)}."
    return _guarded(f"{total} within budget.", checked.checks)


def _guarded(line: str, checks: Sequence[Check]) -> str:
    """The line, which says where nothing is compared with a lock."""
    missing = next((check.unlocked for check in checks if check.unlocked), "")
    if not missing:
        return line
    return f"{line.removesuffix('.')}; {missing}: retraining is not guarded (check --update)."


def file_of(checked: Checked) -> str:
    """The path of the configuration, relative to the repository's root in a CI job."""
    top = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    if not top or not checked.config:
        return checked.config
    path = os.path.relpath(checked.config, top)
    return checked.config if path.startswith(os.pardir) else path


def statistics_line(check: Check) -> str:
    """The settings of the statistical tests."""
    statistics = check.statistics
    resamples = "" if statistics.method == "mcnemar" else f", {statistics.resamples} resamples"
    severity = "an error" if statistics.inconclusive == "error" else "a warning"
    return (
        f"tested at {confidence(statistics.confidence)}, method "
        f"{statistics.method}{resamples}, seed {statistics.seed}; inconclusive is {severity}"
    )


def remarks(check: Check) -> Iterator[str]:
    """Further lines about a check, the most important first."""
    yield from (f"changed: {units.plain(change)}" for change in check.changes)
    yield from map(_accepted, check.accepted)
    yield from (f"note: {units.plain(note)}" for note in check.notes)
    if check.reused:
        yield "note: nothing changed: this is the result of the last check"


def _accepted(drop: AcceptedDrop) -> str:
    before, after = (value_of(drop.metric, value) for value in (drop.before, drop.after))
    return (
        f"accepted: {units.plain(drop.stage)} from {before} to {after} on {units.plain(drop.date)} "
        f"by `{units.plain(drop.command)}`"
    )


_FILES = {None: "not locked", False: "as locked", True: "changed"}


def stage_table(check: Check) -> Table | None:
    """One row a stage, from the checkpoint to the quantized files; None without stages."""
    if not check.stages:
        return None
    metric = units.plain(_metric(check)) or "value"
    columns: list[Column[StageState]] = [
        Column("stage", lambda stage: stage.stage, is_text=True),
        Column("model", lambda stage: units.plain(stage.model), is_text=True, wraps=True),
        Column("file", lambda stage: _FILES[stage.changed], is_text=True),
        Column("moved", _moved, is_text=True),
        Column(f"{metric} locked", lambda stage: value_of(stage.metric, stage.before)),
        Column("now", lambda stage: value_of(stage.metric, stage.after)),
        Column("drop since the lock", lambda each: _drop(each.metric, each.drop, each.interval)),
        Column(
            "drop from the stage before",
            lambda each: _drop(each.metric, each.own_drop, each.own_interval),
        ),
    ]
    known = (
        column
        for column in columns[3:]
        if any(column.cell(stage) != units.ABSENT for stage in check.stages)
    )
    return table([*columns[:3], *known], check.stages, caption="Stages")


def class_table(check: Check, most: int) -> Table | None:
    """At most `most` classes and slices that dropped, the worst first; None without any."""
    if not check.classes:
        return None
    metric = _metric(check)
    columns: list[Column[ClassDrop]] = [
        Column("name", lambda drop: units.plain(drop.name), is_text=True),
        Column("kind", lambda drop: drop.kind, is_text=True),
        Column("model", lambda drop: units.plain(drop.model), is_text=True, wraps=True),
        Column("from", lambda drop: drop.reference or units.ABSENT, is_text=True),
        Column("samples", lambda drop: str(drop.samples)),
        Column("before", lambda drop: value_of(metric, drop.before)),
        Column("after", lambda drop: value_of(metric, drop.after)),
        Column("drop", lambda drop: _drop(metric, drop.drop, drop.interval)),
    ]
    left_out = max(0, len(check.classes) - most)
    return table(columns, check.classes[:most], caption="Classes that dropped", left_out=left_out)


def _metric(check: Check) -> str:
    return next((stage.metric for stage in check.stages if stage.metric), "")


def _moved(stage: StageState) -> str:
    if stage.moved is None:
        return units.ABSENT
    drop = stage.own_drop if stage.drop is None else stage.drop
    if not stage.moved or not drop:
        return "no"
    return "worse" if drop > 0 else "better"


def _drop(metric: str, drop: float | None, interval: Interval | None) -> str:
    return units.with_interval(drop_value(drop, metric), interval_value(interval, metric))
