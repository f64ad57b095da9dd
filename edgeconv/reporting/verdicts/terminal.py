"""Checks as text for a terminal or a log."""

from collections.abc import Iterator, Sequence
from itertools import islice

from edgeconv.reporting import units
from edgeconv.reporting.limits import (
    VerdictWord,
    Word,
    explanation,
    in_words,
    name_of,
    word_of,
    word_of_verdict,
)
from edgeconv.reporting.pages import Block, dim, to_text
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, Table, table
from edgeconv.reporting.verdicts.words import (
    class_table,
    closing,
    headline,
    remarks,
    stage_table,
    statistics_line,
    worst_first,
)
from edgeconv.types import Check, Checked, Finding

_MOST_CLASSES = 10
# In a brief check: with the two lines above, four if all limits hold.
_MOST_REMARKS = 2
_STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    **dict.fromkeys(("WARN", "–", "?", "NOT MEASURED", "INCONCLUSIVE"), "yellow"),
}


def render_text(
    checked: Checked, *, width: int | None = None, color: bool = False, verbose: bool = True
) -> str:
    """The page of each check, and a last line for all unless it is a single one."""
    page = tuple(checked_page(checked, verbose=verbose))
    return to_text(page, width=width, color=color) + "\n"


def checked_page(checked: Checked, *, verbose: bool = False) -> Iterator[Block]:
    """The page of each check, and a last line for all where there are several, or none."""
    for check in checked.checks:
        yield from check_page(check, verbose=verbose)
        yield from [""] * verbose
    if verbose or len(checked.checks) != 1:
        yield Text(" ").join((word("PASS" if checked.ok else "FAIL"), closing(checked)))


def check_page(check: Check, *, verbose: bool = False) -> Iterator[Block]:
    """A line for what holds, and the findings that do not.

    `verbose` has all limits of the model, its stages, and the classes that dropped.
    """
    which = word_of_verdict(check.verdict)
    yield Text(" ").join((word(which), Text(headline(check), "bold")))
    if check.summary:
        yield units.plain(check.summary)
    if not verbose:
        yield from finding_tables([f for f in worst_first(check) if f.outcome != "passed"])
        yield from map(dim, islice(remarks(check), _MOST_REMARKS))
        return
    yield ""
    yield from finding_tables(worst_first(check))
    for shown in (stage_table(check), class_table(check, _MOST_CLASSES)):
        if shown:
            yield from ("", Text(f"{shown.caption}:", style="bold"), shown)
            if shown.left_out:
                yield dim(f"and {shown.left_out} more")
    yield ""
    yield from map(dim, (*remarks(check), statistics_line(check)))


def word(which: Word | VerdictWord) -> Text:
    """The word in its color."""
    return Text(which, style=_STYLES[which])


def finding_tables(findings: Sequence[Finding], *, below_table: bool = False) -> list[Table]:
    """One row a finding with its explanation below; no table without findings."""

    def reason(finding: Finding) -> Iterator[Text]:
        if clauses := explanation(finding, below_table=below_table):
            yield dim("; ".join(clauses))

    return [table(_COLUMNS, findings, reason)] if findings else []


def _outcome(finding: Finding) -> Cell:
    return Cell(word_of(finding), style=_STYLES[word_of(finding)])


_COLUMNS: tuple[Column[Finding], ...] = (
    Column("", _outcome, is_text=True),
    Column("model", lambda finding: units.plain(finding.model), is_text=True, wraps=True),
    Column("limit", name_of, is_text=True),
    Column("allowed", lambda finding: in_words(finding)[0]),
    Column("actual", lambda finding: in_words(finding)[1]),
)
