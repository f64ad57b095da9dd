"""Files in every version of a runtime: their states, and the first bad version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Line, PageTable, headings, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.types import Report, VersionResult

COLUMNS = ("Model", "Version", "State", "Flipped", "SNR", "Why")


def matrix_table(report: Report) -> PageTable | None:
    """One line for each file and version; None where versions were not run."""
    if not report.matrix:
        return None
    return PageTable(
        name="matrix",
        caption="Each file in each version that pip can install here. Right: its answers are those "
        "of the reference, to 20 dB. " + " ".join(matrix_lines(report)),
        headings=headings(*COLUMNS, text={0, 1, 2, 5}),
        lines=tuple(_line(each) for each in report.matrix),
    )


def matrix_cells(each: VersionResult) -> tuple[str, ...]:
    """The cells of `COLUMNS`, as harmless text."""
    snr = "reference" if each.is_reference else units.decibels(each.snr_db)
    return (
        units.plain(each.model),
        units.plain(each.runtime),
        each.state,
        units.ABSENT if each.flips is None else str(each.flips),
        units.ABSENT if each.snr_db is None and not each.is_reference else snr,
        units.first_line(each.detail),
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


def _line(each: VersionResult) -> Line:
    model, version, state, flips, snr, why = matrix_cells(each)
    return Line(
        cells=(
            Cell(text=model),
            Cell(text=version),
            Cell(text=state),
            number(flips, each.flips),
            number(snr, each.snr_db),
            Cell(text=why),
        )
    )
