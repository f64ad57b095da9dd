"""The pages of trainings, reports and verdicts."""

from collections.abc import Iterator, Sequence

from edgeconv.reporting import units
from edgeconv.reporting.closeness import agreement_lines, difference_lines
from edgeconv.reporting.columns import (
    SAME_SPEED,
    SHOWN,
    ModelColumn,
    ModelRow,
    columns_of,
    model_rows,
)
from edgeconv.reporting.facts import (
    circumstance_facts,
    epoch_table,
    outcome_facts,
    pace_lines,
    place_facts,
    qat_remarks,
)
from edgeconv.reporting.limits import closing_line, word_of_verdict
from edgeconv.reporting.pages import Block, Labeled, Page, dim, notes
from edgeconv.reporting.sections import matrix_lines, matrix_table, npu_lines, npu_table
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, table
from edgeconv.reporting.verdicts.terminal import finding_tables, word
from edgeconv.types import Report, TrainingRecord, Verdict

# Below the table of a terminal.
_EXPLAINED = ("flips", "CPU flips")
_STYLES = {
    "ok": "green",
    "over": "bold red",
    **dict.fromkeys(("warn", "not measured", "?"), "yellow"),
}


def training_page(record: TrainingRecord) -> Page:
    """One row an epoch, then the results, the files, and how it was trained."""
    facts = [*outcome_facts(record), *place_facts(record), *circumstance_facts(record)]
    return [epoch_table(record), "", Labeled([(fact.label, fact.text) for fact in facts])]


def report_page(report: Report) -> Page:
    """The title, the machine and data, and one row a model, the baseline first."""
    rows = model_rows(report)
    further: list[Block] = []
    if matrix := matrix_table(report):
        further += ["", matrix, *matrix_lines(report)]
    if npu := npu_table(report):
        further += ["", npu, *map(dim, npu_lines(report))]
    remarks = [c.note for c in SHOWN if c.heading in _EXPLAINED and c.is_known(rows)]
    if any(row.text("speed-up") == SAME_SPEED for row in rows):
        remarks.insert(0, f"speed-up: {SAME_SPEED} is as fast as float32, within noise")
    return [
        Text(units.plain(report.title), style="bold"),
        *map(dim, _circumstances(report)),
        "",
        table(_model_columns(report, rows), rows, _below_model),
        *further,
        *difference_lines(report),
        *map(dim, remarks),
        *notes(report.notes),
    ]


def _model_columns(report: Report, rows: Sequence[ModelRow]) -> list[Column[ModelRow]]:
    """The name, the columns that any model has, and the outcome of its limits."""
    measured = [shown for column in columns_of(report) for shown in _shown(column, rows)]
    budget: Column[ModelRow] = Column(
        "budget", lambda row: Cell(row.mark, style=_STYLES.get(row.mark, "")), is_text=True
    )
    return [
        Column("model", _name, is_text=True, wraps=True),
        *(column for column in measured if not column.is_text),
        *([budget] if report.verdict else []),
        *(column for column in measured if column.is_text),
    ]


def _shown(column: ModelColumn, rows: Sequence[ModelRow]) -> Iterator[Column[ModelRow]]:
    """The column if any model has it, and the column of its interval."""

    def cell(row: ModelRow) -> Cell:
        return Cell(column.text(row), style="dim" if column.is_text else "")

    if column.is_main or column.is_of_file or column.is_known(rows):
        yield Column(column.heading, cell, column.is_text, column.beneath)
    if column.interval_heading and column.has_interval(rows):
        yield Column(column.interval_heading, column.interval_text, beneath=True)


def _name(row: ModelRow) -> Cell:
    return Cell(row.name, aside=" (baseline)" if row.is_named_baseline else "")


def _below_model(row: ModelRow) -> Iterator[Text]:
    """Its error, pace and further metrics; without an accuracy, the agreement of its outputs."""
    if row.error:
        yield Text(f"did not run: {row.error}", style="red")
    yield from map(dim, pace_lines(row.model))
    if row.metrics:
        each = (f"{name} {value} {row.drops[name]}" for name, value in row.metrics.items())
        yield dim(", ".join(map(str.rstrip, each)))
    if row.model.accuracy is None:
        yield from map(dim, agreement_lines(row.model))
    yield from map(dim, qat_remarks(row.qat) if row.qat else ())


def verdict_page(verdict: Verdict, *, below_table: bool = False) -> Page:
    """One row a finding, and a last line with the outcome and the reason.

    `below_table`: the table of the report is above, which has the intervals.
    """
    which = "PASS" if verdict.ok else word_of_verdict(verdict)
    closing = Text(" ").join((word(which), closing_line(verdict)))
    return [*finding_tables(verdict.findings, below_table=below_table), closing]


def _circumstances(report: Report) -> list[str]:
    env, data = report.environment, report.data
    lines = [units.plain(f"on {env.machine}: {env.cpu}, {env.cores} cores, {env.system}")]
    if data:
        steps = f", {data.preprocessing}" if data.preprocessing else ""
        count = units.counted(data.samples, "sample")
        lines.append(units.plain(f"{units.data(data.source)}{steps}: {count}"))
    return lines
