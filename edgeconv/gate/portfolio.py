"""A sweep checked against a budget: one gate for all its models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.config import limited
from edgeconv.config.chosen import Chosen, NoConfig
from edgeconv.errors import InputRefused, UsageError
from edgeconv.gate.flow import check_report, unchecked
from edgeconv.store import read_noun
from edgeconv.types import Budget, Checked, Swept, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Check, GateStatistics, Report


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


def check_swept(swept: Swept, request: CheckRequest) -> Checked:
    """A check for each model and data set. Raises `UsageError` without a budget.

    What failed or has not run does not pass, unless one cell of each model is enough.
    """
    budget, config = _budget(swept, request)
    if not swept.reports:
        return Checked(config=config, checks=(unchecked(swept.title, "the sweep has no cell"),))
    checks = tuple(_check(each, budget, request.statistics, swept) for each in swept.reports)
    return Checked(config=config, checks=checks)


def _budget(swept: Swept, request: CheckRequest) -> tuple[Budget, str]:
    """The budget, and the configuration that it is from, if any."""
    if request.budget is not None:
        return request.budget, ""
    if swept.budget != Budget():
        return swept.budget, ""
    try:
        config = Chosen(request).config
    except NoConfig as error:
        raise UsageError(
            "there is no budget to check the sweep against",
            hint="add a [budget] to its file and run `edgeconv sweep` again, or --config FILE",
        ) from error
    return limited(config), str(config.path)


def _check(report: Report, budget: Budget, statistics: GateStatistics, swept: Swept) -> Check:
    check = check_report(report, budget, statistics)
    if swept.gate == "every-cell":
        return check
    by_cell = [
        tuple(finding for finding in check.verdict.findings if finding.model == row.name)
        for row in report.measurements
    ]
    passing = [each for each in by_cell if each and Verdict(findings=each).ok]
    # Where no cell keeps the budget, all reasons are shown.
    verdict = Verdict(findings=sum(passing, ())) if passing else check.verdict
    return msgspec.structs.replace(check, verdict=verdict)
