"""Several reports as one: the rows of all, where they may stand beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.measure.comparable import (
    accuracy_differences,
    agreement_differences,
    latency_differences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.types import Measurement, Report


def combine_reports(reports: Sequence[Report]) -> Report:
    """One report with the rows of all; names that are there twice get the title before them.

    Baseline, machine, samples and notes are those of the first, which the others must share.
    Raises `InputRefused` where they do not, or where nothing was measured.
    """
    measured(reports)
    first, *others = reports
    for other in others:
        if differences := differences_of(first, other):
            raise InputRefused(
                f"{first.title!r} and {other.title!r} do not compare: {'; '.join(differences)}",
                hint="show them apart with --side-by-side, or measure them in one run",
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
    """Raise `InputRefused` where one of them, or the set of them, has nothing to show."""
    there = list(reports)
    if not there:
        raise InputRefused("there is no report to show", hint="give the report.json of a bench")
    for report in there:
        if not report.measurements and report.baseline is None:
            raise InputRefused(
                f"the report {report.title!r} has no measurements",
                hint="make one with edgeconv bench",
            )


def differences_of(first: Report, second: Report) -> tuple[str, ...]:
    """Why two reports must not share a table; empty where they may."""
    found = [
        *latency_differences(first, second),
        *accuracy_differences(first, second),
        *agreement_differences(first, second),
    ]
    one, other = first.baseline, second.baseline
    if one and other and one.sha256 != other.sha256:
        found.append(f"baseline: {_named(one)} and {_named(other)}")
    return tuple(dict.fromkeys(found))


def _named(baseline: Measurement) -> str:
    return f"{baseline.name} ({baseline.sha256[:12]})"
