"""A report as Markdown for a pull request: the verdict, one table, and what broke."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.report import units
from edgeconv.report.differences import difference_lines
from edgeconv.report.facts import command_line
from edgeconv.report.flips import class_name, flips_of
from edgeconv.report.layers import layer_name, worst_first
from edgeconv.report.limits import closing_line, in_words
from edgeconv.report.rows import ModelRow, accuracy_heading, model_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.nouns import Report

_MOST_FLIPS = 5
_MOST_LAYERS = 5
_MARKS = {"ok": "✅", "over": "❌", "–": ""}
# All that starts markup in GitHub's Markdown, and what it makes links of by itself: addresses,
# mentions of people and numbers of issues, which it finds in the text that is shown.
_MARKUP = re.compile(r"([\\`*_{}\[\]()+!|~$]|:(?=//))")
_LINKED = re.compile(r"([@#]|www(?=\.))")


def render_markdown(report: Report, *others: Report) -> str:
    """The reports one below the other. No name in them becomes markup, a link or a mention."""
    return "\n\n".join("\n".join(_lines(each)) for each in (report, *others)) + "\n"


def escaped(text: str) -> str:
    """Foreign text that shows as it is, in a table too."""
    harmless = units.plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _LINKED.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", harmless))


def _lines(report: Report) -> Iterator[str]:
    rows = model_rows(report)
    yield f"### {_word(report)}{escaped(report.title)}"
    yield ""
    if report.verdict:
        yield escaped(closing_line(report.verdict))
        yield ""
    yield from _table(report, rows)
    yield from _broken(report)
    yield from _details(report, rows)


def _word(report: Report) -> str:
    if report.verdict is None:
        return ""
    return "✅ Pass: " if report.verdict.ok else "❌ Fail: "


def _table(report: Report, rows: Sequence[ModelRow]) -> Iterator[str]:
    accuracy = accuracy_heading(report)
    columns: dict[str, Callable[[ModelRow], str]] = {
        "size": lambda row: row.size,
        "ratio": lambda row: row.size_ratio,
        "p50": lambda row: row.p50,
        "speed-up": lambda row: row.speed_up,
        accuracy: lambda row: row.accuracy,
        "drop": lambda row: _with(row.drop, row.drop_interval),
        "flips": lambda row: row.flips,
    }
    shown = {
        name: cell
        for name, cell in columns.items()
        if any(cell(row) != units.ABSENT for row in rows)
    }
    yield _row(["", "model", *(escaped(name) for name in shown)])
    yield _row(["---", "---", *("--:" for _ in shown)])
    for row in rows:
        name = escaped(row.name) + _baseline(row)
        if row.error:
            name += f"<br>did not run: {escaped(row.error)}"
        yield _row([_MARKS[row.mark], name, *(escaped(cell(row)) for cell in shown.values())])


def _baseline(row: ModelRow) -> str:
    return " (baseline)" if row.is_baseline and row.name != "baseline" else ""


def _broken(report: Report) -> Iterator[str]:
    """The limits that do not hold."""
    broken = [f for f in report.verdict.findings if not f.ok] if report.verdict else []
    if not broken:
        return
    yield ""
    yield "**What broke**"
    yield ""
    for finding in broken:
        allowed, actual = in_words(finding)
        limit = escaped(finding.limit)
        yield f"- {escaped(finding.model)}: {limit} {escaped(actual)}, allowed {escaped(allowed)}"


def _details(report: Report, rows: Sequence[ModelRow]) -> Iterator[str]:
    yield from _folded("Differences", [f"- {escaped(said)}" for said in difference_lines(report)])
    yield from _folded("Flips", list(_flips(report)))
    yield from _folded(
        "Outputs", [f"- {escaped(r.name)}: {escaped(a)}" for r in rows for a in r.agreement]
    )
    yield from _folded("Worst layers", list(_layers(report)))
    yield from _folded("How this was measured", list(_circumstances(report)))


def _folded(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"<details><summary>{heading}</summary>"
        yield ""
        yield from lines
        yield ""
        yield "</details>"


def _flips(report: Report) -> Iterator[str]:
    if report.baseline is None:
        return
    names = report.class_names
    for model in report.measurements:
        flips = flips_of(model, report.baseline, report.labels)
        for flip in flips[:_MOST_FLIPS]:
            label, was, is_now = (
                escaped(class_name(index, names)) for index in (flip.label, flip.before, flip.after)
            )
            count = len(flip.samples)
            yield (
                f"- {escaped(units.plain(model.name))}: {count} of class {label} from {was} "
                f"to {is_now}, such as sample {flip.samples[0]}"
            )
        if len(flips) > _MOST_FLIPS:
            yield f"- {escaped(model.name)}: {len(flips) - _MOST_FLIPS} more kinds of flips"


def _layers(report: Report) -> Iterator[str]:
    for model in report.measurements:
        for _, error in worst_first(model.layer_errors)[:_MOST_LAYERS]:
            layer = f"{escaped(layer_name(error.layer))} ({escaped(error.operator)})"
            yield f"- {escaped(model.name)}: {layer}, {escaped(units.decibels(error.snr_db))}"


def _circumstances(report: Report) -> Iterator[str]:
    here = report.environment
    processor = f"{escaped(here.cpu)}, {here.cores} cores"
    yield f"- {escaped(here.machine)}: {processor}, {escaped(here.system)}"
    if report.data:
        steps = f", {escaped(report.data.preprocessing)}" if report.data.preprocessing else ""
        yield f"- {report.data.samples} samples of {escaped(report.data.source)}{steps}"
    tools = ", ".join(f"{name} {version}" for name, version in sorted(here.tools.items()))
    if tools:
        yield f"- {escaped(tools)}"
    if report.command:
        yield f"- {escaped(command_line(report))}"
    yield from (f"- {escaped(note)}" for note in report.notes)


def _with(value: str, interval: str) -> str:
    return value if interval == units.ABSENT else f"{value} {interval}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
