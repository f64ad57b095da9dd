"""The verb `report`: measurements together, judged where there is a budget, as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError
from edgeconv.gate.budget import check
from edgeconv.measure.comparable import combine_reports, differences_of, measured
from edgeconv.reporting.files import read_report, write_formats
from edgeconv.store import writable_directory

if TYPE_CHECKING:
    from edgeconv.requests.looking import ReportRequest
    from edgeconv.types import Report


def report(asked: ReportRequest) -> tuple[Report, ...]:
    """One report of all, or with `side_by_side` as few as compare within themselves.

    They are written where a directory is named. Raises `InputRefused` for a file that is not a
    report, or for reports that do not compare, and `UsageError` without any.
    """
    if not asked.files:
        raise UsageError("give one or several report.json of `edgeconv bench`")
    reports = tuple(_judged(one, asked) for one in _gathered(asked))
    if asked.directory is not None:
        directory = Path(asked.directory).absolute()
        writable_directory(directory)
        write_formats(reports, directory, tuple(dict.fromkeys(asked.formats)) or ("html",))
    return reports


def _gathered(asked: ReportRequest) -> tuple[Report, ...]:
    reports = [read_report(Path(file)) for file in asked.files]
    measured(reports)
    if not asked.side_by_side:
        return (combine_reports(reports),)
    groups: list[list[Report]] = []
    for one in reports:
        fitting = (g for g in groups if not any(differences_of(each, one) for each in g))
        group = next(fitting, None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return tuple(combine_reports(group) for group in groups)


def _judged(one: Report, asked: ReportRequest) -> Report:
    """The report with the title and the verdict that were asked for."""
    if asked.title:
        one = msgspec.structs.replace(one, title=asked.title)
    if asked.budget is None:
        return one
    return msgspec.structs.replace(one, verdict=check(one, asked.budget))
