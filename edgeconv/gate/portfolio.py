"""A sweep checked against a budget: one gate for all its models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.config import limited
from edgeconv.config.chosen import Chosen, NoConfig
from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.flow import check_report, unchecked
from edgeconv.store import read_noun
from edgeconv.types import Budget, Checked, SweepGate, Swept, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Check, Report


class _Kind(msgspec.Struct):
    sweep: int | None = None


def read_swept(path: Path) -> Swept | None:
    """The sweep in a sweep.json; None for another file. Raises `InputRefused`."""
    try:
        kind = read_noun(path, _Kind, what="report")
    except InputRefused:
        # The reader of reports gives the reason.
        return None
    return None if kind.sweep is None else read_noun(path, Swept, what="sweep")


def check_swept(swept: Swept, request: CheckRequest) -> tuple[Checked, dict[str, Check]]:
    """A check for each model and data set; and of each file by its path, of all its cells.

    What failed or has not run does not pass, unless one cell of each model is enough. Raises
    `UsageError` without a budget.
    """
    budgets, config = _budgets(swept, request)
    if not swept.reports:
        nothing = unchecked(swept.title, "the sweep has no cell")
        return Checked(config=config, checks=(nothing,)), {}
    every = [
        check_report(report, budget, request.statistics)
        for report, budget in zip(swept.reports, budgets, strict=True)
    ]
    pairs = zip(swept.reports, every, strict=True)
    checks = tuple(_gated(report, check, swept.gate) for report, check in pairs)
    return Checked(config=config, checks=checks), _by_file(swept, every)


def _by_file(swept: Swept, checks: Sequence[Check]) -> dict[str, Check]:
    """All findings on each file, which may be measured on several data sets."""
    by_file = {}
    for file, sha256 in {cell.file: cell.sha256 for cell in swept.cells if cell.file}.items():
        own = [
            check
            for report, check in zip(swept.reports, checks, strict=True)
            if any(row.sha256 == sha256 for row in report.measurements)
        ]
        by_file[file] = msgspec.structs.replace(
            own[0],
            verdict=Verdict(findings=sum((check.verdict.findings for check in own), ())),
            stages=sum((check.stages for check in own), ()),
        )
    return by_file


def _budgets(swept: Swept, request: CheckRequest) -> tuple[list[Budget], str]:
    """The budget of each report, and the configuration that all are from, if any."""
    if request.budget is not None:
        return [request.budget] * len(swept.reports), ""
    if swept.budget != Budget() or swept.budgets:
        titles = [report.title for report in swept.reports]
        budgets = [swept.budgets.get(title, swept.budget) for title in titles]
        if Budget() in budgets:
            unlimited = titles[budgets.index(Budget())]
            raise UsageError(
                f"there is no limit for {unlimited}, while other models have some",
                hint="add a [budget] to the file of the sweep, or a [model.PATTERN.budget], and "
                "run `edgeconv sweep` again",
            )
        return budgets, ""
    try:
        config = Chosen(request).config
    except NoConfig as error:
        raise UsageError(
            "there is no budget to check the sweep against",
            hint="add a [budget] to its file and run `edgeconv sweep` again, or --config FILE",
        ) from error
    return [limited(config)] * len(swept.reports), str(config.path)


def _gated(report: Report, check: Check, gate: SweepGate) -> Check:
    if gate == "every-cell":
        return check
    by_cell = [
        tuple(finding for finding in check.verdict.findings if finding.model == row.name)
        for row in report.measurements
    ]
    passing = [each for each in by_cell if each and Verdict(findings=each).ok]
    # Where no cell keeps the budget, all reasons are shown.
    verdict = Verdict(findings=sum(passing, ())) if passing else check.verdict
    return msgspec.structs.replace(check, verdict=verdict)
