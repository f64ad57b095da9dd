"""A report as Markdown for a pull request: the verdict, one table, and what broke."""

from collections.abc import Iterator, Sequence

from edgeconv.reporting import units
from edgeconv.reporting.closeness import agreement_lines, difference_lines
from edgeconv.reporting.columns import ModelColumn, ModelRow, columns_of, model_rows
from edgeconv.reporting.facts import command_line, pace_lines
from edgeconv.reporting.layers import layer_name, worst_first
from edgeconv.reporting.limits import closing_line, sentence, word_of
from edgeconv.reporting.sections import (
    class_name,
    flips_of,
    matrix_lines,
    matrix_table,
    npu_lines,
    npu_table,
)
from edgeconv.reporting.tables import Column, escape, fold, markdown_lines, table
from edgeconv.types import Report

_MOST_FLIPS = 5
_MOST_LAYERS = 5
_MARKS = {"ok": "✅", "warn": "⚠️", "over": "❌", "not measured": "⬜", "?": "❔", "–": ""}
_HEADINGS = {"FAIL": "What broke", "–": "Not measured", "?": "Inconclusive", "WARN": "Warnings"}


def render_markdown(report: Report, *others: Report) -> str:
    """The reports one after another. No name in them becomes markup, a link or a mention."""
    return "\n\n".join("\n".join(_lines(each)) for each in (report, *others)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    rows = model_rows(report)
    word = "" if not report.verdict else "✅ Pass: " if report.verdict.ok else "❌ Fail: "
    yield f"### {word}{escape(report.title)}"
    yield ""
    if report.verdict:
        yield escape(closing_line(report.verdict))
        yield ""
    yield from _models(report, rows)
    yield from _matrix(report)
    yield from _npu(report)
    yield from _broken(report)
    yield from _details(report, rows)


def _models(report: Report, rows: Sequence[ModelRow]) -> Iterator[str]:
    columns: list[Column[ModelRow]] = [
        Column("", lambda row: _MARKS[row.mark], is_text=True),
        Column("model", _name, is_text=True),
        *(
            _shown(column)
            for column in columns_of(report)
            if column.short and column.is_known(rows)
        ),
    ]
    yield from markdown_lines(table(columns, rows), str)


def _shown(column: ModelColumn) -> Column[ModelRow]:
    return Column(escape(column.heading), lambda row: escape(column.short_text(row)))


def _name(row: ModelRow) -> str:
    name = f"{escape(row.name)}{' (baseline)' * row.is_named_baseline}"
    return f"{name}<br>did not run: {escape(row.error)}" if row.error else name


def _matrix(report: Report) -> Iterator[str]:
    if matrix := matrix_table(report):
        yield ""
        yield from (f"- {escape(line)}" for line in matrix_lines(report))
        yield from fold("Versions", list(markdown_lines(matrix)))


def _npu(report: Report) -> Iterator[str]:
    if npu := npu_table(report):
        yield ""
        yield from markdown_lines(npu)
        yield ""
        yield from (f"- {escape(line)}" for line in npu_lines(report))


def _broken(report: Report) -> Iterator[str]:
    findings = report.verdict.findings if report.verdict else ()
    for word, heading in _HEADINGS.items():
        if listed := [finding for finding in findings if word_of(finding) == word]:
            yield ""
            yield f"**{heading}**"
            yield ""
            yield from (f"- {escape(sentence(finding, below_table=True))}" for finding in listed)


def _details(report: Report, rows: Sequence[ModelRow]) -> Iterator[str]:
    yield from fold("Differences", [f"- {escape(line)}" for line in difference_lines(report)])
    yield from fold(
        "Pace",
        [f"- {escape(r.name)}: {escape(line)}" for r in rows for line in pace_lines(r.model)],
    )
    yield from fold("Flips", list(_flips(report)))
    yield from fold(
        "Outputs",
        [f"- {escape(r.name)}: {escape(a)}" for r in rows for a in agreement_lines(r.model)],
    )
    yield from fold("Worst layers", list(_layers(report)))
    yield from fold("How this was measured", list(_circumstances(report)))


def _flips(report: Report) -> Iterator[str]:
    if report.baseline is None:
        return
    names = report.class_names
    for model in report.measurements:
        flips = flips_of(model, report.baseline, report.labels)
        for flip in flips[:_MOST_FLIPS]:
            label, was, is_now = (
                escape(class_name(index, names)) for index in (flip.label, flip.before, flip.after)
            )
            count = len(flip.samples)
            yield (
                f"- {escape(units.plain(model.name))}: {count} of class {label} from {was} "
                f"to {is_now}, such as sample {flip.samples[0]}"
            )
        if len(flips) > _MOST_FLIPS:
            yield f"- {escape(model.name)}: {len(flips) - _MOST_FLIPS} more kinds of flips"


def _layers(report: Report) -> Iterator[str]:
    for model in report.measurements:
        for _, error in worst_first(model.layer_errors)[:_MOST_LAYERS]:
            layer = f"{escape(layer_name(error.layer))} ({escape(error.operator)})"
            against = escape(model.layers_against or "float32")
            ratio = escape(units.decibels(error.snr_db))
            yield f"- {escape(model.name)}: {layer}, {ratio} against {against}"


def _circumstances(report: Report) -> Iterator[str]:
    here = report.environment
    processor = f"{escape(here.cpu)}, {here.cores} cores"
    yield f"- {escape(here.machine)}: {processor}, {escape(here.system)}"
    if report.data:
        steps = f", {escape(report.data.preprocessing)}" if report.data.preprocessing else ""
        yield f"- {report.data.samples} samples of {escape(report.data.source)}{steps}"
    tools = ", ".join(f"{name} {version}" for name, version in sorted(here.tools.items()))
    if tools:
        yield f"- {escape(tools)}"
    if report.command:
        yield f"- {escape(command_line(report))}"
    yield from (f"- {escape(note)}" for note in report.notes)
