"""The verb `report`: measurements of one or several files, checked against a budget."""

from pathlib import Path

import msgspec

from edgeconv.gate.budget import check
from edgeconv.measure.compare import combine_reports, differences_of, measured
from edgeconv.reporting.files import read_report, write_formats
from edgeconv.requests.looking import ReportRequest
from edgeconv.system.store import writable_directory
from edgeconv.types import Report
from edgeconv.types.errors import UsageError


def report(request: ReportRequest) -> tuple[Report, ...]:
    """One report of all files; with `side_by_side`, one for each group of comparable files.

    Writes them where a directory is named. Raises `InputRefused` for a file that is not a report
    and for reports that are not comparable, `UsageError` without files.
    """
    if not request.files:
        raise UsageError("give one or several report.json of `edgeconv bench`")
    reports = tuple(_finish(each, request) for each in _combine(request))
    if request.directory is not None:
        directory = Path(request.directory).absolute()
        writable_directory(directory)
        write_formats(reports, directory, tuple(dict.fromkeys(request.formats)) or ("html",))
    return reports


def _combine(request: ReportRequest) -> tuple[Report, ...]:
    reports = [read_report(Path(file)) for file in request.files]
    measured(reports)
    if not request.side_by_side:
        return (combine_reports(reports),)
    groups: list[list[Report]] = []
    for each in reports:
        fitting = (g for g in groups if not any(differences_of(other, each) for other in g))
        group = next(fitting, None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return tuple(combine_reports(group) for group in groups)


def _finish(report: Report, request: ReportRequest) -> Report:
    if request.title:
        report = msgspec.structs.replace(report, title=request.title)
    if request.budget is None:
        return report
    return msgspec.structs.replace(report, verdict=check(report, request.budget))
