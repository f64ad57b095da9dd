"""GitHub: the summary of a job, a comment that is updated in place, and annotations of files.

GitHub takes 1 MiB of Markdown for the summary of a step and 65,536 characters for a comment. Longer
documents lose detail, failures last, and say that they are shortened. GitHub shows ten errors, ten
warnings and ten notices of a step; a title may have 255 characters, a message 64 KiB. Source:
"Workflow commands for GitHub Actions" in GitHub's documentation, and the escapes of
`@actions/core`, command.ts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from edgeconv.reporting import units
from edgeconv.reporting.limits import (
    explanation,
    in_words,
    name_of,
    sentence,
    word_of,
    word_of_verdict,
)
from edgeconv.reporting.tables import Column, Table, escape, fold, markdown_lines, table
from edgeconv.reporting.verdicts.words import (
    broken_findings,
    class_table,
    closing,
    file_of,
    headline,
    level_of,
    remarks,
    stage_table,
    statistics_line,
    worst_first,
)
from edgeconv.types import Check, Checked, Finding

MOST_IN_A_SUMMARY = 2**20
MOST_IN_A_COMMENT = 65_536
_MOST_IN_A_MARKER = 200
_MOST_ANNOTATIONS = 10
_MOST_IN_A_TITLE = 200
_MOST_IN_A_MESSAGE = 8000
_MARKS = {
    "FAIL": "❌",
    "WARN": "⚠️",
    "PASS": "✅",
    **dict.fromkeys(("–", "NOT MEASURED"), "⬜"),
    **dict.fromkeys(("?", "INCONCLUSIVE"), "❔"),
}
_FINDINGS: tuple[Column[Finding], ...] = (
    Column("", lambda finding: _MARKS[word_of(finding)], is_text=True),
    Column("model", lambda finding: finding.model, is_text=True),
    Column("limit", name_of, is_text=True),
    Column("allowed", lambda finding: in_words(finding)[0]),
    Column("actual", lambda finding: in_words(finding)[1]),
    Column("", lambda finding: "; ".join(explanation(finding)), is_text=True),
)
_SHORTENED = "_Shortened to the limit of the host; the text of the check has the rest._"


@dataclass(frozen=True)
class _Detail:
    """The most of each check: rows of a table, further lines, characters of a text."""

    rows: int
    lines: int
    characters: int
    has_held: bool = False
    has_stages: bool = True


_DETAILS = (
    _Detail(rows=200, lines=50, characters=500, has_held=True),
    _Detail(rows=30, lines=10, characters=200),
    _Detail(rows=5, lines=3, characters=80),
    _Detail(rows=0, lines=0, characters=80, has_stages=False),
)


def render_summary(checked: Checked) -> str:
    """The summary of a job, at most `MOST_IN_A_SUMMARY` bytes."""
    return _fitting("", checked, MOST_IN_A_SUMMARY)


def render_comment(checked: Checked) -> str:
    """A comment of at most `MOST_IN_A_COMMENT` bytes.

    Its first line is invisible and the same for each check of a configuration: the next comment
    can replace this one.
    """
    end = file_of(checked)[-_MOST_IN_A_MARKER:]
    config = quote(end.encode("utf-8", "backslashreplace"), safe="/")
    return _fitting(f"<!-- edgeconv check: {config} -->\n", checked, MOST_IN_A_COMMENT)


def _fitting(marker: str, checked: Checked, most_bytes: int) -> str:
    """The most detailed document that fits; else the lines of the least detailed that fit."""
    for number, detail in enumerate(_DETAILS):
        shortened = ["", _SHORTENED] if number else []
        lines = [*_lines(checked, detail), *shortened]
        text = marker + "\n".join(lines) + "\n"
        if _size(text) <= most_bytes:
            return text
    while _size(text) > most_bytes:
        lines = [*lines[: len(lines) * 2 // 3], *shortened]
        text = marker + "\n".join(lines) + "\n"
    return text


def _size(text: str) -> int:
    return len(text.encode())


def _lines(checked: Checked, detail: _Detail) -> Iterator[str]:
    mark = _MARKS["PASS" if checked.ok else "FAIL"]
    yield f"## {mark} edgeconv check: {_shown(closing(checked), detail)}"
    # Failures come first: the end may be cut.
    for check in sorted(checked.checks, key=lambda check: check.verdict.ok):
        yield ""
        yield f"### {_MARKS[word_of_verdict(check.verdict)]} {_shown(headline(check), detail)}"
        yield from _check_lines(check, detail)


def _check_lines(check: Check, detail: _Detail) -> Iterator[str]:
    if check.summary:
        yield ""
        yield _shown(check.summary, detail)
    findings = worst_first(check)
    yield from _findings([each for each in findings if each.outcome != "passed"], detail)
    grids = [stage_table(check) if detail.has_stages else None, class_table(check, detail.rows)]
    tables = [line for grid in grids if grid for line in _grid_lines(grid, detail)]
    if check.verdict.ok:
        yield from fold("Stages and classes", tables)
    else:
        yield from tables
    yield from _remarks(check, detail)
    if detail.has_held:
        held = [each for each in findings if each.outcome == "passed"]
        yield from fold("What holds", list(_findings(held, detail))[1:])


def _findings(findings: Sequence[Finding], detail: _Detail) -> Iterator[str]:
    shown = findings[: detail.rows]
    if shown:
        yield ""
        yield from markdown_lines(table(_FINDINGS, shown), partial(_shown, detail=detail))
    yield from _more(len(findings) - len(shown), "limit")


def _grid_lines(grid: Table, detail: _Detail) -> Iterator[str]:
    if grid.rows:
        yield from ("", f"**{grid.caption}**", "")
        yield from markdown_lines(grid, partial(_shown, detail=detail))
        yield from _more(grid.left_out, "row")


def _remarks(check: Check, detail: _Detail) -> Iterator[str]:
    lines = [*remarks(check), statistics_line(check)][: detail.lines]
    if lines:
        yield ""
        yield from (f"- {_shown(line, detail)}" for line in lines)


def _more(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield ""
        yield f"and {units.counted(count, f'further {what}')}"


def _shown(text: str, detail: _Detail) -> str:
    harmless = units.plain(text[: detail.characters + 1])
    if len(harmless) > detail.characters:
        harmless = f"{harmless[: detail.characters - 1]}…"
    return escape(harmless)


def render_annotations(checked: Checked) -> str:
    """A line for each limit that does not hold, and a notice for the summary of each model."""
    return "".join(f"{line}\n" for line in (*_limit_commands(checked), *_notices(checked)))


def _limit_commands(checked: Checked) -> Iterator[str]:
    file = file_of(checked)
    for level in ("error", "warning"):
        broken = [(c, f) for c, f in broken_findings(checked) if level_of(f) == level]
        shown = broken if len(broken) <= _MOST_ANNOTATIONS else broken[: _MOST_ANNOTATIONS - 1]
        for check, finding in shown:
            yield _command(level, file, check.name, sentence(finding), finding.line)
        if len(shown) < len(broken):
            more = f"{len(broken) - len(shown)} more limits do not hold; see the summary of the job"
            yield _command(level, file, "edgeconv check", more)


def _notices(checked: Checked) -> Iterator[str]:
    summarized = [check for check in checked.checks if check.summary]
    for check in summarized[:_MOST_ANNOTATIONS]:
        yield _command("notice", file_of(checked), check.name, units.plain(check.summary))


def _command(level: str, file: str, title: str, message: str, line: int | None = None) -> str:
    where = f"file={_property(file)},line={line or 1}," if file else ""
    title = _property(units.plain(title)[:_MOST_IN_A_TITLE])
    return f"::{level} {where}title={title}::{_data(message[:_MOST_IN_A_MESSAGE])}"


def _data(text: str) -> str:
    harmless = units.plain(text)
    return harmless.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
