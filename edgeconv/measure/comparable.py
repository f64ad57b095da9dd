"""Which measurements of different reports compare, and reports combined into one.

Times compare on one machine, in one runtime, with equally many threads; accuracies on the same
samples. Machines of the same processor, cores, system and location count as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edgeconv.types import Latency, Measurement, Report

_DIGITS = 12


def latency_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the times of two reports do not compare, such as "threads: 1 and 2".

    Empty where they do, or one has none. The baseline's count only if there are no others.
    """
    timed, others = _timed(first), _timed(second)
    if not (timed and others):
        return ()
    return tuple(_different(_timing(first, timed), _timing(second, others)))


def accuracy_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the accuracies of two reports do not compare; empty if they do, or one has none."""
    metrics, others = _metrics(first), _metrics(second)
    if not (metrics and others):
        return ()
    differences = tuple(_different(_samples(first), _samples(second)))
    if not set(metrics) & set(others):
        return (*differences, f"metric: {_listed(metrics)} and {_listed(others)}")
    return differences


def agreement_differences(first: Report, second: Report) -> tuple[str, ...]:
    """Why the agreement of outputs does not compare; empty if it does, or one has none."""
    if not all(any(row.agreement for row in _rows(report)) for report in (first, second)):
        return ()
    return tuple(_different(_samples(first), _samples(second)))


def _different(first: dict[str, str], second: dict[str, str]) -> Iterator[str]:
    for what, value in first.items():
        if value != second[what]:
            yield f"{what}: {value or 'none'} and {second[what] or 'none'}"


def _rows(report: Report) -> list[Measurement]:
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def _timed(report: Report) -> list[tuple[Measurement, Latency]]:
    timed = [(row, row.latency) for row in _rows(report) if row.latency is not None]
    return [pair for pair in timed if pair[0].role == "artifact"] or timed


def _timing(report: Report, timed: list[tuple[Measurement, Latency]]) -> dict[str, str]:
    here = report.environment
    return {
        "host": here.host or "this machine",
        "machine": here.machine,
        "processor": here.cpu,
        "cores": str(here.cores),
        # The release of a kernel changes with every update, and hardly the times.
        "system": here.system.partition(" ")[0],
        "runtime": _listed([row.runtime for row, _ in timed]),
        "threads": _listed([str(latency.threads) for _, latency in timed]),
        "batch": _listed([str(latency.batch) for _, latency in timed]),
    }


def _samples(report: Report) -> dict[str, str]:
    data = report.data
    return {
        "number of samples": str(data.samples) if data else "",
        "preprocessing": data.preprocessing if data else "",
        "hash of the samples": data.sha256[:_DIGITS] if data else "",
    }


def _metrics(report: Report) -> list[str]:
    rows = [row for row in _rows(report) if row.accuracy is not None]
    return [
        accuracy.metric
        for row in rows
        for accuracy in (row.accuracy, *row.metrics)
        if accuracy is not None
    ]


def _listed(values: list[str]) -> str:
    return ", ".join(sorted(set(values)))


def combine_reports(reports: Sequence[Report]) -> Report:
    """One report with the rows of all; a name that occurs twice gets its report's title.

    Raises `InputRefused` if the reports do not compare, or nothing was measured.
    """
    measured(reports)
    first, *others = reports
    for other in others:
        if differences := differences_of(first, other):
            raise InputRefused(
                f"{first.title!r} and {other.title!r} cannot be compared: {'; '.join(differences)}",
                hint="show them separately with --side-by-side, or measure them in one run",
            )
    if not others:
        return first
    names = [row.name for report in reports for row in report.measurements]
    taken: dict[str, int] = {}
    rows = []
    for report in reports:
        for row in report.measurements:
            name = row.name if names.count(row.name) == 1 else f"{report.title}: {row.name}"
            taken[name] = taken.get(name, 0) + 1
            unique = name if taken[name] == 1 else f"{name} ({taken[name]})"
            rows.append(msgspec.structs.replace(row, name=unique))
    artifacts = {artifact.sha256: artifact for r in reports for artifact in r.artifacts}
    return msgspec.structs.replace(
        first,
        title=" and ".join(dict.fromkeys(report.title for report in reports)),
        baseline=next((r.baseline for r in reports if r.baseline), None),
        measurements=tuple(rows),
        comparisons=(),
        training=next((r.training for r in reports if r.training), None),
        artifacts=tuple(artifacts.values()),
        command=(),
        verdict=None,
        notes=tuple(dict.fromkeys(note for r in reports for note in r.notes)),
    )


def measured(reports: Iterable[Report]) -> None:
    """Raise `InputRefused` if there is no report, or one without measurements."""
    all_reports = list(reports)
    if not all_reports:
        raise InputRefused("there is no report to show", hint="give the report.json of a bench")
    for report in all_reports:
        if not report.measurements and report.baseline is None:
            raise InputRefused(
                f"the report {report.title!r} has no measurements",
                hint="make one with edgeconv bench",
            )


def differences_of(first: Report, second: Report) -> tuple[str, ...]:
    """Why two reports must not share a table; empty if they may."""
    differences = [
        *latency_differences(first, second),
        *accuracy_differences(first, second),
        *agreement_differences(first, second),
    ]
    before, after = first.baseline, second.baseline
    if before and after and before.sha256 != after.sha256:
        differences.append(f"baseline: {_named(before)} and {_named(after)}")
    return tuple(dict.fromkeys(differences))


def _named(baseline: Measurement) -> str:
    return f"{baseline.name} ({baseline.sha256[:12]})"
