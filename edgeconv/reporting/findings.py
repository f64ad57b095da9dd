"""Findings of the gate as a table of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.reporting import units
from edgeconv.reporting.layout import Column, Grid, Row
from edgeconv.reporting.limits import VerdictWord, Word, explanation, in_words, name_of, word_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Finding

_STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    **dict.fromkeys(("WARN", "–", "?", "NOT MEASURED", "INCONCLUSIVE"), "yellow"),
}
_COLUMNS = (
    Column("", right=False),
    Column("model", right=False, wraps=True),
    Column("limit", right=False),
    Column("allowed"),
    Column("actual"),
)


def word(which: Word | VerdictWord) -> Text:
    """The word in its colour."""
    return Text(which, style=_STYLES[which])


def finding_grids(findings: Sequence[Finding], *, beside_table: bool = False) -> list[Grid]:
    """One row a finding, and under it what else is to be said; no table where there is none."""
    rows = [_row(finding, beside_table) for finding in findings]
    return [Grid(_COLUMNS, rows)] if rows else []


def _row(finding: Finding, beside_table: bool) -> Row:
    allowed, actual = in_words(finding)
    cells = (units.plain(finding.model), name_of(finding), allowed, actual)
    said = "; ".join(explanation(finding, beside_table=beside_table))
    details = (Text(said, style="dim"),) if said else ()
    return Row((word(word_of(finding)), *map(Text, cells)), details)
