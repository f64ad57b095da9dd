"""Differences of accuracy in words: with their intervals, and whether chance explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.values import interval_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import Comparison, Report


def difference_lines(report: Report) -> list[str]:
    """Which drops are within chance, and a line for each two artifacts that were compared."""
    drops = "; ".join(_drops(report))
    compared = [_compared(comparison) for comparison in report.comparisons]
    return [*([f"drop: {drops}"] if drops else []), *compared]


def _drops(report: Report) -> Iterator[str]:
    """The models in groups: within chance of the baseline, worse, better."""
    found = [
        (units.plain(model.name), model.accuracy_drop_interval)
        for model in report.measurements
        if model.accuracy_drop_interval is not None
    ]
    within = [name for name, (low, high) in found if low <= 0 <= high]
    if within:
        yield f"within chance for {', '.join(within)} (0 is in the 95 % interval)"
    worse = [name for name, (low, _) in found if low > 0]
    if worse:
        yield f"worse beyond chance for {', '.join(worse)}"
    better = [name for name, (_, high) in found if high < 0]
    if better:
        yield f"better beyond chance for {', '.join(better)}"


def _compared(comparison: Comparison) -> str:
    low, high = comparison.interval
    verdict = "better beyond" if low > 0 else "worse beyond" if high < 0 else "within"
    sign = "+" if comparison.difference > 0 else ""
    points = units.points(comparison.difference).replace(" pp", " points")
    return (
        f"{units.plain(comparison.model)} against {units.plain(comparison.other)}: "
        f"{sign}{points} {interval_value(comparison.interval, '')}, "
        f"{comparison.fixed} fixed, {comparison.broken} broken: {verdict} chance"
    )
