"""Tables and facts of the page: models, latency, agreement, the machine, how to reproduce it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, span
from edgeconv.reporting.columns import (
    SHOWN,
    all_models,
    columns_of,
    metric_columns,
    model_rows,
)
from edgeconv.reporting.tables import Cell, Column, Row, Table, capital, cells_of, number, table
from edgeconv.reporting.training import Fact
from edgeconv.reporting.units import duration_interval
from edgeconv.system.processes.escaping import shell_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edgeconv.reporting.columns import ModelColumn, ModelRow
    from edgeconv.types import Agreement, Conditions, Latency, Measurement, PacedLatency, Report

    _Timed = tuple[Measurement, str, Latency]
    _Agreement = tuple[Measurement, Agreement]

# A period is kept that is longer by no more than a timer's grain.
_KEPT_WITHIN = 1.1


def models_table(report: Report) -> Table:
    """One line a model, the baseline first, with the columns that any of them has."""
    rows = model_rows(report)
    budget: Column[ModelRow] = Column(
        "Budget", lambda row: Cell(row.mark, key=row.mark, kind=f"mark {row.mark}"), is_text=True
    )
    known = [
        Column("Model", lambda row: Cell(row.name, under=row.runtime, key=row.name), is_text=True),
        *([budget] if report.verdict else []),
        *(_shown(column, capital(column.heading)) for column in SHOWN if column.is_of_file),
    ]
    measured = [each for each in _measured(report, rows) if _is_there(each, rows)]
    if not measured:
        measured = [Column("Measured", lambda _: "nothing", is_text=True)]
    lines = [_model_line(i, row, known, measured) for i, row in enumerate(rows)]
    notes = (column.note for column in SHOWN if column.note and column.is_explained(rows))
    return Table(
        (*known, *measured),
        tuple(lines),
        name="models",
        caption=" ".join(f"{capital(note)}." for note in notes) or "Every model that was measured.",
        kind="models",
    )


def _model_line(
    index: int, row: ModelRow, known: list[Column[ModelRow]], measured: list[Column[ModelRow]]
) -> Row:
    """A model that did not run has the `known` cells, and the error."""
    kind = "is-baseline" if row.is_baseline else ""
    if not row.error:
        return Row(cells_of([*known, *measured], row), kind=kind, number=index)
    error = Cell(row.error, kind="remark", lead="Did not run.")
    cells = (*cells_of(known, row), error)
    return Row(cells, kind=kind, number=index, spans=len(measured))


def _measured(report: Report, rows: Sequence[ModelRow]) -> Iterator[Column[ModelRow]]:
    columns = columns_of(report)
    for column, plain, below in zip(columns, SHOWN, (*columns[1:], None), strict=True):
        if not (column.is_under or column.is_of_file):
            under = below if below and below.is_under else None
            yield _shown(column, capital(column.heading), under)
        if plain.heading == "accuracy":
            yield from (_shown(each, each.heading) for each in metric_columns(rows))


def _shown(column: ModelColumn, heading: str, below: ModelColumn | None = None) -> Column[ModelRow]:
    """The column of the page: below each number its interval, or another number."""

    def cell(row: ModelRow) -> Cell:
        text = column.text(row)
        if column.number is None:
            return Cell(text)
        under = below.text(row) if below else column.interval_text(row)
        label = f"{below.heading} " if below else ""
        under = "" if under == units.ABSENT else f"{label}{under}"
        return number(text, column.number(row.model), under=under)

    return Column(heading, cell)


def _is_there(column: Column[ModelRow], rows: Sequence[ModelRow]) -> bool:
    cells = (cells_of([column], row)[0] for row in rows)
    return any(cell.text != units.ABSENT or cell.under for cell in cells)


def latency_table(report: Report) -> Table | None:
    """Load, first invoke and percentiles of every model that was timed; None without any."""
    timed = [model for model in all_models(report) if model.latency]
    if not timed:
        return None
    is_cold = any(model.cold for model in timed)
    return table(
        _LATENCY,
        [(model, *kind) for model in timed for kind in _kinds(model)],
        name="latency",
        caption="Load and first invoke are the medians of the processes. "
        "Percentiles are over the samples of all processes"
        + ("; of cold starts, over load and first invoke together." if is_cold else "."),
    )


def batched_line(model: Measurement | None) -> str:
    """The time of the trained model per batch; "" where that was not measured."""
    if model is None or not model.batched_us or not model.batched_size:
        return ""
    middle = median(model.batched_us)
    return (
        f"{units.plain(model.name)} in batches of {model.batched_size}: "
        f"{units.duration(middle)} a call, {units.duration(middle / model.batched_size)} a sample."
    )


def agreement_table(report: Report) -> Table | None:
    """The error of every output against its reference; None where that was not measured."""
    pairs = [(m, each) for m in report.measurements for each in (*m.agreement, *m.kernels)]
    if not pairs:
        return None
    return table(
        _AGREEMENT,
        pairs,
        name="agreement",
        caption="The outputs of each model on the samples, compared with those of its reference. "
        "Flipped: samples whose highest score is at another index. SNR: the variance of the "
        "reference over the error; every 6 dB halve the error, and a constant reference has none.",
    )


def machine_facts(report: Report) -> list[Fact]:
    """The machine, its load, and the data."""
    here, data = report.environment, report.data
    facts = [Fact("machine", units.plain(here.machine))]
    if here.host:
        facts.append(Fact("host", units.plain(here.host), is_code=True))
    facts.append(Fact("processor", f"{units.plain(here.cpu)}, {units.counted(here.cores, 'core')}"))
    facts.append(Fact("system", f"{units.plain(here.system)}, Python {units.plain(here.python)}"))
    facts += condition_facts(report.conditions)
    if data:
        steps = f", {units.plain(data.preprocessing)}" if data.preprocessing else ""
        facts.append(Fact("data", f"{data.samples} samples of {units.plain(data.source)}{steps}"))
    return facts


def condition_facts(conditions: Conditions | None) -> list[Fact]:
    """The load of the machine, as far as it is known."""
    if conditions is None:
        return []
    facts = []
    loads = [load for load in (conditions.load_before, conditions.load_after) if load is not None]
    if loads:
        facts.append(Fact("load", " before, ".join(f"{load:.2f}" for load in loads) + " after"))
    for label, share in (("stolen time", conditions.steal), ("other processes", conditions.busy)):
        if share is not None:
            facts.append(Fact(label, f"{units.percent(share, 1)} of the processors' time"))
    if conditions.governor:
        facts.append(Fact("frequency governor", units.plain(conditions.governor)))
    if conditions.frequency_mhz:
        low, high = conditions.frequency_mhz
        facts.append(Fact("frequency", f"{low:.0f} to {high:.0f} MHz"))
    return facts


def command_line(report: Report) -> str:
    """The command of the report for a shell; "" where it is not known."""
    return shell_line(report.command)


def version_facts(report: Report) -> list[Fact]:
    """The runtimes, and the tools with their versions."""
    runtimes = dict.fromkeys(model.runtime for model in all_models(report) if model.runtime)
    facts = [Fact("runtimes", units.plain(", ".join(runtimes)))] if runtimes else []
    tools = ", ".join(f"{name} {v}" for name, v in sorted(report.environment.tools.items()))
    return [*facts, *([Fact("tools", units.plain(tools))] if tools else [])]


def hash_table(report: Report) -> Table:
    """The hash of every model and of the samples."""
    data = [("the samples", report.data.sha256)] if report.data else []
    return table(
        _HASHES,
        [*((units.plain(m.name), m.sha256) for m in all_models(report)), *data],
        name="hashes",
        caption="SHA-256 of every model and of the samples.",
        is_sortable=False,
    )


def pace_title(paced: PacedLatency) -> str:
    """How often a model was invoked: "every 10 ms", and the distance where that was not kept."""
    number, _, unit = units.duration(paced.period_us).partition(" ")
    whole = number.rstrip("0").rstrip(".") if "." in number else number
    title = f"every {whole} {unit}"
    if paced.distance_us <= _KEPT_WITHIN * paced.period_us:
        return title
    return f"{title} (not kept: one in {units.duration(paced.distance_us)})"


def pace_lines(model: Measurement) -> tuple[str, ...]:
    """One line for the invokes in a period, and one for the cold starts, where there are any."""
    lines = []
    if model.paced:
        count = units.counted(sum(map(len, model.paced.rounds_us)), "invoke")
        lines.append(f"{pace_title(model.paced)}: {_percentiles(model.paced)}, {count}")
    if model.cold:
        count = f"{len(model.cold.rounds_us)} fresh process{'es' * (len(model.cold.rounds_us) > 1)}"
        lines.append(f"load and first invoke: {_percentiles(model.cold)}, {count}")
    return tuple(lines)


def _percentiles(latency: Latency) -> str:
    p50, p90, p99 = map(units.duration, (latency.p50_us, latency.p90_us, latency.p99_us))
    interval = duration_interval(latency.p50_interval_us)
    return f"p50 {units.with_interval(p50, interval)}, p90 {p90}, p99 {p99}"


def _kinds(model: Measurement) -> Iterator[tuple[str, Latency]]:
    """The latencies of a model: without pause, in a period, and of cold starts."""
    if model.latency:
        yield "", model.latency
    if model.paced:
        yield f", {pace_title(model.paced)}", model.paced
    if model.cold:
        yield ", cold", model.cold


def _timed_name(timed: _Timed) -> Cell:
    model, kind, latency = timed
    rounds = len(latency.rounds_us)
    under = f"{rounds} process{'es' * (rounds > 1)}"
    return Cell(f"{units.plain(model.name)}{kind}", under=under)


def _duration(heading: str, of: Callable[[Latency], float | None]) -> Column[_Timed]:
    return Column(heading, lambda timed: number(units.duration(of(timed[2])), of(timed[2])))


def _counted(heading: str, of: Callable[[Latency], int]) -> Column[_Timed]:
    return Column(heading, lambda timed: number(str(of(timed[2])), of(timed[2])))


def _median(times: Sequence[float]) -> float | None:
    return median(times) if times else None


_LATENCY: tuple[Column[_Timed], ...] = (
    Column("Model", _timed_name, is_text=True),
    _duration("Load", lambda latency: _median(latency.load_us)),
    _duration("First invoke", lambda latency: _median(latency.first_us)),
    _duration("p50", lambda latency: latency.p50_us),
    Column(
        "95 % interval",
        lambda timed: Cell(
            duration_interval(timed[2].p50_interval_us), key=timed[2].p50_interval_us[0]
        ),
    ),
    _duration("p90", lambda latency: latency.p90_us),
    _duration("p99", lambda latency: latency.p99_us),
    _counted("Samples", lambda latency: sum(map(len, latency.rounds_us))),
    Column("Warm-up", lambda timed: ", ".join(map(str, timed[2].warmup)) or units.ABSENT),
    _counted("Threads", lambda latency: latency.threads),
    _counted("Batch", lambda latency: latency.batch),
)
_AGREEMENT: tuple[Column[_Agreement], ...] = (
    Column("Model", lambda pair: units.plain(pair[0].name), is_text=True),
    Column("Output", lambda pair: units.plain(pair[1].output), is_text=True),
    Column("Reference", lambda pair: units.plain(pair[1].reference), is_text=True),
    Column("Flipped", lambda pair: number(units.count(pair[1].flips), pair[1].flips)),
    Column("Largest error", lambda p: number(units.significant(p[1].max_error), p[1].max_error)),
    Column("Outputs span", lambda pair: span(pair[1])),
    Column("SNR", lambda pair: number(units.decibels(snr(pair[1])), pair[1].snr_db)),
    Column("Cosine", lambda p: number(units.significant(p[1].cosine, 5), p[1].cosine)),
    Column("Samples", lambda pair: number(str(pair[1].samples), pair[1].samples)),
)
_HASHES: tuple[Column[tuple[str, str]], ...] = (
    Column("What", lambda pair: pair[0], is_text=True),
    Column("SHA-256", lambda pair: Cell(units.plain(pair[1]), kind="code"), is_text=True),
)
