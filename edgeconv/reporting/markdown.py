"""A report as Markdown for a pull request: the verdict, one table, and what broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.facts import command_line
from edgeconv.reporting.flips import class_name, flips_of
from edgeconv.reporting.layers import layer_name, worst_first
from edgeconv.reporting.limits import closing_line, sentence, word_of
from edgeconv.reporting.markup import escape, fold, row
from edgeconv.reporting.matrix import COLUMNS, matrix_cells, matrix_lines
from edgeconv.reporting.npu import NPU_COLUMNS, npu_cells, npu_lines, npu_rows
from edgeconv.reporting.rows import ModelRow, accuracy_heading, difference_lines, model_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
    yield from _table(report, rows)
    yield from _matrix(report)
    yield from _npu(report)
    yield from _broken(report)
    yield from _details(report, rows)


def _table(report: Report, rows: Sequence[ModelRow]) -> Iterator[str]:
    accuracy = accuracy_heading(report)
    columns: dict[str, Callable[[ModelRow], str]] = {
        "size": lambda row: row.size,
        "ratio": lambda row: row.size_ratio,
        "p50": lambda row: row.p50,
        "paced p50": lambda row: units.with_interval(row.paced, row.paced_interval),
        "cold p50": lambda row: units.with_interval(row.cold, row.cold_interval),
        "speed-up": lambda row: units.with_interval(row.speed_up, row.speed_up_interval),
        accuracy: lambda row: row.accuracy,
        "drop": lambda row: units.with_interval(row.drop, row.drop_interval),
        "flips": lambda row: row.flips,
        "GPU": lambda row: row.gpu,
        "CPU flips": lambda row: row.kernel_flips,
    }
    shown = {
        name: cell
        for name, cell in columns.items()
        if any(cell(row) != units.ABSENT for row in rows)
    }
    yield row(["", "model", *(escape(name) for name in shown)])
    yield row(["---", "---", *("--:" for _ in shown)])
    for each in rows:
        is_named = each.is_baseline and each.name != "baseline"
        name = f"{escape(each.name)}{' (baseline)' * is_named}"
        if each.error:
            name += f"<br>did not run: {escape(each.error)}"
        yield row([_MARKS[each.mark], name, *(escape(cell(each)) for cell in shown.values())])


def _matrix(report: Report) -> Iterator[str]:
    if report.matrix:
        yield ""
        yield from (f"- {escape(line)}" for line in matrix_lines(report))
        header = [row(COLUMNS), row(["---"] * len(COLUMNS))]
        cells = (row([*map(escape, matrix_cells(each))]) for each in report.matrix)
        yield from fold("Versions", [*header, *cells])


def _npu(report: Report) -> Iterator[str]:
    if rows := npu_rows(report):
        yield ""
        yield row([*NPU_COLUMNS])
        yield row(["--:" if is_number else "---" for is_number in NPU_COLUMNS.values()])
        yield from (row([*map(escape, npu_cells(*each))]) for each in rows)
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
        "Pace", [f"- {escape(r.name)}: {escape(line)}" for r in rows for line in r.pace]
    )
    yield from fold("Flips", list(_flips(report)))
    yield from fold(
        "Outputs", [f"- {escape(r.name)}: {escape(a)}" for r in rows for a in r.agreement]
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
