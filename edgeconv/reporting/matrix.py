"""Files in every version of a runtime: their states, and the first bad version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Column, Table, number, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.types import Report, VersionResult


def _snr(each: VersionResult) -> Cell:
    if each.is_reference:
        return number("reference", each.snr_db)
    return number(units.decibels(each.snr_db), each.snr_db)


_COLUMNS: tuple[Column[VersionResult], ...] = (
    Column("model", lambda each: units.plain(each.model), is_text=True),
    Column("version", lambda each: units.plain(each.runtime), is_text=True),
    Column("state", lambda each: each.state, is_text=True),
    Column("flipped", lambda each: number(units.count(each.flips), each.flips)),
    Column("SNR", _snr),
    Column("why", lambda each: units.first_line(each.detail), is_text=True, wraps=True),
)


def matrix_table(report: Report) -> Table | None:
    """One line for each file and version; None where versions were not run."""
    if not report.matrix:
        return None
    return table(
        _COLUMNS,
        report.matrix,
        name="matrix",
        caption="Each file in each version that pip can install here. Right: its answers are those "
        "of the reference, to 20 dB. " + " ".join(matrix_lines(report)),
    )


def matrix_lines(report: Report) -> tuple[str, ...]:
    """For each file its first bad version, or that there is none."""
    lines = []
    for name in dict.fromkeys(each.model for each in report.matrix):
        own = [each for each in report.matrix if each.model == name]
        bad = first_bad(own)
        counted = units.counted(len(own), "version")
        left = sum(each.state == "not installable" for each in own)
        missing = f", {left} of them not installable" if left else ""
        does = f"{bad.runtime}, which {_does(bad)}" if bad else ""
        verdict = f"first bad version {does}" if bad else "none is bad"
        lines.append(units.plain(f"{name} in {counted}{missing}: {verdict}."))
    return tuple(lines)


def first_bad(results: Iterable[VersionResult]) -> VersionResult | None:
    """Of one file, the oldest version that could be installed and is not right."""
    bad = (each for each in results if each.state not in ("right", "not installable"))
    return next(bad, None)


def what_it_does(bad: VersionResult) -> str:
    """A bad version in words: "litert==2.1.0 answers wrong"."""
    return f"{bad.runtime} {_does(bad)}"


def _does(bad: VersionResult) -> str:
    return "answers wrong" if bad.state == "wrong" else bad.state
