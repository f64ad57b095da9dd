"""Tables and facts of the page: models, latency, agreement, the machine, how to reproduce it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, span
from edgeconv.reporting.columns import (
    SHOWN,
    ModelColumn,
    ModelRow,
    all_models,
    columns_of,
    metric_columns,
    model_rows,
)
from edgeconv.reporting.tables import Cell, Column, Row, Table, capital, cells_of, number, table
from edgeconv.reporting.units import duration_interval
from edgeconv.system.processes.escaping import shell_line
from edgeconv.types import (
    Agreement,
    Conditions,
    Epoch,
    Latency,
    Measurement,
    PacedLatency,
    QatRecord,
    Report,
    TrainingRecord,
)

_Timed = tuple[Measurement, str, Latency]

_Agreement = tuple[Measurement, Agreement]

_Numbered = tuple[int, Epoch]


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
            yield from map(_shown_metric, metric_columns(rows))


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


def _shown_metric(column: ModelColumn) -> Column[ModelRow]:
    """A further metric, with its drop below."""

    def cell(row: ModelRow) -> Cell:
        value = column.number and column.number(row.model)
        return number(column.text(row), value, under=row.drops.get(column.heading, ""))

    return Column(column.heading, cell)


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
    """A line for the invokes in a period and one for the cold starts, if they were measured."""
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


_LOOPS = {"fit": "Keras fit", "custom": "custom training loop"}


@dataclass(frozen=True)
class Fact:
    """A labeled line of harmless text; `is_code` for a path or a command."""

    label: str
    text: str
    is_code: bool = False


def training_facts(record: TrainingRecord) -> list[Fact]:
    """All about a training except its epochs, which `epoch_table` has."""
    tools = ", ".join(f"{name} {version}" for name, version in sorted(record.tools.items()))
    return [
        Fact("model", units.plain(record.model)),
        *circumstance_facts(record),
        *outcome_facts(record),
        *place_facts(record),
        *([Fact("versions", units.plain(tools))] if tools else []),
    ]


def epoch_table(record: TrainingRecord) -> Table:
    """What was logged: every metric with its validation, and the throughput.

    One row an epoch; the number of the one that was kept has a *.
    """
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    pairs = [(name, val) for name in names for val in (False, True) if _has(record, name, val)]
    columns: list[Column[_Numbered]] = [
        Column("epoch", lambda e: f"{e[0]}{'*' * (e[0] == record.best_epoch)}", True, wraps=True),
        *(_logged(record, name, validation) for name, validation in pairs),
        Column("samples/s", lambda e: units.significant(e[1].samples_per_second)),
        Column("time", lambda e: units.duration(e[1].seconds * 1e6), beneath=True),
    ]
    return table(columns, enumerate(record.epochs, start=1), is_sortable=False)


def _logged(record: TrainingRecord, name: str, validation: bool) -> Column[_Numbered]:
    return Column(
        f"{'val ' if validation else ''}{units.plain(name)}",
        lambda numbered: metric(_of(numbered[1], validation).get(name)),
        beneath=validation and _has(record, name, False),
    )


def metric(value: float | None) -> str:
    """A loss or a metric with four decimals, fewer where it is large."""
    if value is None:
        return units.ABSENT
    return f"{value:.4f}".replace("-", "−") if abs(value) < 1000 else units.significant(value, 5)


def strategy_line(record: TrainingRecord) -> str:
    """The strategy with the processes and devices it ran on."""
    parts = [record.strategy]
    if record.workers > 1:
        parts.append(units.counted(record.workers, "worker"))
    parts.append(units.counted(record.replicas, "replica"))
    where = f" on {', '.join(record.devices)}" if record.devices else ""
    ops = record.cross_device_ops
    summed = f", summed by {ops}" if ops not in ("", "auto") else ""
    return units.plain(", ".join(parts) + where + summed)


def samples_line(record: TrainingRecord) -> str:
    """The numbers of samples to train and to validate."""
    kept_apart = f", {record.validation_samples} to validate" if record.validation_samples else ""
    return f"{record.train_samples} to train{kept_apart}"


def circumstance_facts(record: TrainingRecord) -> Iterator[Fact]:
    """The strategy, schedule and samples."""
    yield Fact("strategy", strategy_line(record))
    yield Fact("loop", _LOOPS[record.loop])
    yield Fact(
        "schedule",
        f"{units.counted(len(record.epochs), 'epoch')} of "
        f"{units.counted(record.steps_per_epoch, 'step')}, "
        f"global batch {record.global_batch}, learning rate {record.learning_rate:g}, "
        f"seed {record.seed}",
    )
    yield Fact("samples", samples_line(record))


def outcome_facts(record: TrainingRecord) -> Iterator[Fact]:
    """The test metrics, the epoch that was kept, and the time."""
    if record.test_metrics:
        yield Fact(
            "test",
            f"{_named(record.test_metrics)} on {units.counted(record.test_samples, 'sample')}",
        )
    if record.best_epoch:
        yield Fact("kept", f"epoch {record.best_epoch}, the best by its validation")
    yield from interruption_facts(record)
    whole = "in the last run" if record.resumed_at else "in all"
    yield Fact(
        "time",
        f"{units.duration(record.seconds * 1e6)} of steps, "
        f"{units.duration(record.wall_seconds * 1e6)} {whole}; "
        f"{units.significant(record.samples_per_second)} samples/s",
    )


def place_facts(record: TrainingRecord) -> Iterator[Fact]:
    """Where the saved model is."""
    if record.saved_model:
        yield Fact("SavedModel", units.plain(record.saved_model), is_code=True)
    if record.keras_file:
        yield Fact("Keras file", units.plain(record.keras_file), is_code=True)


def interruption_facts(record: TrainingRecord) -> list[Fact]:
    """Why it ended early, and where it was resumed."""
    facts = [Fact("stopped", units.plain(record.stopped))] if record.stopped else []
    if record.resumed_at:
        steps = ", ".join(map(str, record.resumed_at))
        facts.append(Fact("resumed", f"at step{'s' * (len(record.resumed_at) > 1)} {steps}"))
    return facts


def _named(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{units.plain(name)} {metric(value)}" for name, value in metrics.items())


def _of(epoch: Epoch, validation: bool) -> Mapping[str, float]:
    return epoch.validation if validation else epoch.metrics


def _has(record: TrainingRecord, name: str, validation: bool) -> bool:
    return any(name in _of(epoch, validation) for epoch in record.epochs)


def qat_remarks(record: QatRecord) -> list[str]:
    """The quantization-aware training in a few lines: length, cost, and layers left float."""
    remarks = [
        f"trained on for {_length(record)} in {units.duration(record.seconds * 1e6)}, "
        f"{strategy_line(record.training)}"
    ]
    if record.equalized:
        remarks.append(f"channels equalized: {_equalized(record)}")
    return remarks + [f"left float: {text}" for text in _left_float(record)]


def qat_facts(record: QatRecord) -> list[Fact]:
    """All about the quantization-aware training except its epochs."""
    settings, steps = record.settings, units.duration(record.training.seconds * 1e6)
    losses = ", ".join(f"{loss} of {name}" for name, loss in record.losses.items())
    facts = [
        Fact(
            "trained on for",
            f"{_length(record)}, global batch {settings.global_batch}, seed {settings.seed}",
        ),
        Fact("cost", f"{units.duration(record.seconds * 1e6)} in all, {steps} of steps"),
        Fact("strategy", strategy_line(record.training)),
        Fact("samples", f"{samples_line(record.training)}, of {units.plain(record.source)}"),
        Fact("started from", _start(record)),
        *([Fact("loss", units.plain(losses))] if losses else []),
        Fact(
            "ranges",
            f"observed for {units.counted(settings.warmup_steps, 'step')} before weights change",
        ),
        Fact("batch normalization", _batch_norm(settings.freeze_batch_norm_after)),
        Fact("layers", _treatments(record)),
    ]
    facts += [Fact("left float", text) for text in _left_float(record)]
    if record.equalized:
        facts.append(Fact("channels equalized", _equalized(record)))
    return facts + interruption_facts(record.training)


def _length(record: QatRecord) -> str:
    trained, epochs = len(record.training.epochs), record.settings.epochs
    part = f"{trained} of " if trained != epochs else ""
    return (
        f"{part}{units.counted(epochs, 'epoch')} at learning rate {record.settings.learning_rate:g}"
    )


def _start(record: QatRecord) -> str:
    if not record.rebuilt:
        return "the tf_keras model, unchanged"
    error = units.significant(record.rebuilt_max_abs_error)
    return f"the Keras 3 model rebuilt in tf_keras, outputs differ by at most {error}"


def _equalized(record: QatRecord) -> str:
    return units.plain(", ".join(f"{first} to {second}" for first, second in record.equalized))


def _batch_norm(freeze_after: int | None) -> str:
    if freeze_after is None:
        return "updated in every batch"
    return f"frozen after {units.counted(freeze_after, 'epoch')}" if freeze_after else "frozen"


def _treatments(record: QatRecord) -> str:
    treatments = [layer.treatment for layer in record.layers]
    left = treatments.count("float")
    own = treatments.count("quantized with a config of edgeconv's")
    configs = f" ({own} by a config of edgeconv's)" if own else ""
    return f"{len(treatments) - left} quantized{configs}, {left} left float"


def _left_float(record: QatRecord) -> list[str]:
    layers = [layer for layer in record.layers if layer.treatment == "float"]
    reasons = dict.fromkeys(layer.reason for layer in layers)
    return [
        units.plain(
            ", ".join(f"{x.name} ({x.kind})" for x in layers if x.reason == reason)
            + (f": {reason}" if reason else "")
        )
        for reason in reasons
    ]
