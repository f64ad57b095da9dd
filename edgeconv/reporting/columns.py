"""The columns of the table of models, which the terminal, the page, Markdown and CSV read."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

from edgeconv.reporting import units
from edgeconv.reporting.limits import Mark, mark_of
from edgeconv.reporting.units import (
    drop_value,
    duration_interval,
    factor_interval,
    interval_value,
    metric_drop,
    metric_heading,
    metric_value,
)
from edgeconv.types import Accuracy, Latency, Measurement, QatRecord, Report, TrainingRecord
from edgeconv.types.errors import UsageError
from edgeconv.types.words import quoted

_NumberOf = Callable[[Measurement], float | None]

# As fast as float32, within noise.
SAME_SPEED = "≈1×"


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One measured model, with harmless texts and what its cells need from its report.

    `metrics` has the further ones by their headings, and `drops` their drops from the baseline.
    `qat` is how the file was trained on for quantization, and `training` the baseline's training
    where any file was. `error` is "" where it ran.
    """

    model: Measurement
    name: str
    runtime: str
    mark: Mark
    error: str
    metrics: dict[str, str]
    drops: dict[str, str]
    qat: QatRecord | None
    training: TrainingRecord | None

    @property
    def is_baseline(self) -> bool:
        """Whether it is the trained model."""
        return self.model.role == "baseline"

    @property
    def is_named_baseline(self) -> bool:
        """Whether it is the baseline, and its name does not say so."""
        return self.is_baseline and self.name != "baseline"

    def text(self, heading: str) -> str:
        """Its cell in the column with this heading."""
        return _BY_HEADING[heading].text(self)

    def with_interval(self, heading: str) -> str:
        """That cell with its interval, where that is known."""
        return units.with_interval(self.text(heading), _BY_HEADING[heading].interval_text(self))


@dataclass(frozen=True)
class ModelColumn:
    """A column: a number of each model and its form, or a text of its own.

    `interval` of the number is in brackets beside it; a terminal has it in a column of its own if
    that has an `interval_heading`, else not. `csv` is the heading of the plain number in CSV, and
    `csv_interval` of both ends; a column without a `heading` is only there. `note` explains the
    column where a model has it. `is_of_file`: known also where the model does not run. `is_main`:
    in a terminal even if no model has it. `short`: whether it is in Markdown,
    for pull requests, and with its interval.
    `beneath`: below the column before it in a narrow terminal; `is_under`: and on the page, below
    the cell before it. `is_text`: aligned left in a terminal, after the budget.
    """

    heading: str = ""
    number: _NumberOf | None = None
    form: Callable[[Any], str] = units.duration
    _: KW_ONLY
    own_text: Callable[[ModelRow], str] | None = None
    interval: Callable[[Measurement], units.Interval | None] | None = None
    interval_form: Callable[[units.Interval, Measurement], str] = lambda i, _: duration_interval(i)
    interval_heading: str = ""
    csv: str = ""
    csv_interval: str = ""
    note: str = ""
    is_of_file: bool = False
    is_main: bool = False
    short: Literal["interval", "number", ""] = "interval"
    beneath: bool = False
    is_under: bool = False
    is_text: bool = False

    def text(self, row: ModelRow) -> str:
        """The cell of a model; "–" where it was not measured."""
        if self.own_text:
            return self.own_text(row)
        return self.form(self.number(row.model) if self.number else None)

    def interval_text(self, row: ModelRow) -> str:
        """The interval of a cell; "–" without one."""
        known = self.interval(row.model) if self.interval else None
        return units.ABSENT if known is None else self.interval_form(known, row.model)

    def short_text(self, row: ModelRow) -> str:
        """The cell in Markdown."""
        interval = self.interval_text(row) if self.short == "interval" else units.ABSENT
        return units.with_interval(self.text(row), interval)

    def is_known(self, rows: Iterable[ModelRow]) -> bool:
        """Whether any model has it."""
        return any(self.text(row) != units.ABSENT for row in rows)

    def has_interval(self, rows: Iterable[ModelRow]) -> bool:
        """Whether any model has an interval of it."""
        return any(self.interval_text(row) != units.ABSENT for row in rows)

    def is_explained(self, rows: Sequence[ModelRow]) -> bool:
        """Whether its note has something to explain: an interval, or without one a cell."""
        return self.has_interval(rows) if self.interval else self.is_known(rows)

    @property
    def csv_numbers(self) -> dict[str, _NumberOf]:
        """Its plain numbers by their headings."""
        numbers = {self.csv: self.number} if self.csv and self.number else {}
        if self.csv_interval and (interval := self.interval):
            numbers |= {
                self.csv_interval.format("low"): lambda m: (interval(m) or (None, None))[0],
                self.csv_interval.format("high"): lambda m: (interval(m) or (None, None))[1],
            }
        return numbers


def model_rows(report: Report) -> tuple[ModelRow, ...]:
    """The baseline, if there is one, and then the artifacts in their order."""
    trained = {a.sha256: a.qat for a in report.artifacts if a.qat}
    return tuple(
        ModelRow(
            model=model,
            name=units.plain(model.name),
            runtime=units.plain(model.runtime),
            mark=mark_of(model.name, report.verdict),
            error=units.plain_line(model.error),
            metrics={metric_heading(each): metric_value(each) for each in model.metrics},
            drops={metric_heading(each): metric_drop(each) for each in model.metrics},
            qat=trained.get(model.sha256),
            training=report.training if model.role == "baseline" and trained else None,
        )
        for model in all_models(report)
    )


def all_models(report: Report) -> list[Measurement]:
    """The baseline, if there is one, and then the other measured models."""
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def columns_of(report: Report) -> tuple[ModelColumn, ...]:
    """All columns, with the heading that the first metric of this report has."""
    heading = accuracy_heading(report)
    return tuple(replace(c, heading=heading) if c.heading == "accuracy" else c for c in SHOWN)


def metric_columns(rows: Sequence[ModelRow]) -> list[ModelColumn]:
    """A column for each further metric that a model has."""

    def column(name: str) -> ModelColumn:
        def number(model: Measurement) -> float | None:
            return next(
                (each.value for each in model.metrics if metric_heading(each) == name), None
            )

        def text(row: ModelRow) -> str:
            return row.metrics.get(name, units.ABSENT)

        return ModelColumn(name, number, own_text=text)

    return [column(name) for name in dict.fromkeys(name for row in rows for name in row.metrics)]


def accuracy_heading(report: Report) -> str:
    """The heading of the first metric: "accuracy" for top1, else its name."""
    accuracy = first_accuracy(report)
    is_plain = accuracy is None or accuracy.title == "top1"
    return "accuracy" if accuracy is None or is_plain else metric_heading(accuracy)


def first_accuracy(report: Report) -> Accuracy | None:
    """The first accuracy that was measured, whose metric stands for the report."""
    return next((model.accuracy for model in all_models(report) if model.accuracy), None)


def refuse_several_outputs(report: Report) -> None:
    """Raise `UsageError` for accuracies of several outputs, of which one is to be judged."""
    each = (a for model in all_models(report) for a in (model.accuracy, *model.metrics) if a)
    outputs = list(dict.fromkeys(a.output for a in each if a.output))
    if outputs:
        raise UsageError(
            f"there are labels of {len(outputs)} outputs, {quoted(outputs)}, and one is judged",
            hint=f'choose it: output = "{outputs[0]}" in [bench], or bench --output {outputs[0]}',
        )


def _speed_up(row: ModelRow) -> str:
    interval = row.model.latency_ratio_interval
    if interval is not None and interval[0] <= 1 <= interval[1]:
        return SAME_SPEED
    return units.times(units.speed_up(row.model.latency_ratio))


def _sum_of_flips(model: Measurement) -> int | None:
    known = model.fixed is not None and model.broken is not None
    return (model.fixed or 0) + (model.broken or 0) if known else None


def _flips(row: ModelRow) -> str:
    fixed, broken = row.model.fixed, row.model.broken
    return units.ABSENT if fixed is None or broken is None else f"+{fixed} −{broken}"


def _training(row: ModelRow) -> str:
    if row.qat is not None:
        return units.duration(row.qat.seconds * 1e6)
    if row.training is None:
        return units.ABSENT
    if row.training.resumed_at:
        return f">{units.duration(row.training.seconds * 1e6)}"
    return units.duration(row.training.wall_seconds * 1e6)


def _times(
    heading: str, csv: str, of: Callable[[Measurement], Latency | None], note: str
) -> tuple[ModelColumn, ...]:
    """The median with its interval, and two percentiles; CSV alone has these of a paced one."""

    def number(end: Callable[[Latency], float]) -> _NumberOf:
        return lambda model: end(latency) if (latency := of(model)) else None

    p50, p90, p99 = map(number, (lambda t: t.p50_us, lambda t: t.p90_us, lambda t: t.p99_us))
    is_plain = heading == "p50"
    beside: dict[str, Any] = {"short": "", "beneath": True}
    return (
        ModelColumn(
            heading,
            p50,
            interval=lambda model: latency.p50_interval_us if (latency := of(model)) else None,
            csv=f"{csv} p50 (us)",
            csv_interval=f"{heading} interval {{}} (us)",
            note=note,
            short="number" if is_plain else "interval",
        ),
        ModelColumn("p90" * is_plain, p90, csv=f"{csv} p90 (us)", **beside),
        ModelColumn("p99" * is_plain, p99, csv=f"{csv} p99 (us)", is_under=True, **beside),
    )


_IN_BRACKETS = "in brackets: 95 % intervals, of the median and, by sample, of the drop"
_PACED = "paced: invokes in a fixed period, with sleep in between"
_COLD = "cold: load and first invoke of a fresh process"
_FLIPS = "flips: samples that became right (+) or wrong (−), against the baseline"
_KERNEL_FLIPS = "CPU flips: samples with another answer than from the same file on the CPU"
_ARENA = "the arena holds the tensors; memory is all that the process grew by"
_TRAINING = "training is the time of quantization-aware training"
_GRADE = "grade: how close the outputs were to float32's at conversion"
_FLOAT_OPS = "float ops: operators that compute in float in a file of integers"
_RUNS_FROM = "runs from: the oldest TensorFlow Lite that has every operator"
_SPEED_UP = f"{SAME_SPEED} is as fast as float32, within noise: its interval contains 1"
COLUMNS = (
    ModelColumn("size", lambda m: m.size_bytes, units.size, csv="size (bytes)", is_of_file=True),
    ModelColumn(number=lambda m: m.gzip_size_bytes, csv="gzip size (bytes)"),
    ModelColumn(
        "ratio",
        lambda m: m.size_ratio,
        units.times,
        csv="size ratio",
        is_of_file=True,
        beneath=True,
    ),
    *_times("p50", "latency", lambda m: m.latency, note=_IN_BRACKETS),
    *_times("paced p50", "paced", lambda m: m.paced, note=_PACED),
    *_times("cold p50", "cold", lambda m: m.cold, note=_COLD),
    ModelColumn(number=lambda m: m.latency.threads if m.latency else None, csv="threads"),
    ModelColumn(number=lambda m: m.latency.batch if m.latency else None, csv="batch"),
    ModelColumn(number=lambda m: m.latency_ratio, csv="latency ratio"),
    ModelColumn(
        "speed-up",
        lambda m: units.speed_up(m.latency_ratio),
        own_text=_speed_up,
        interval=lambda m: m.latency_ratio_interval,
        interval_form=lambda interval, _: factor_interval(interval),
        csv_interval="latency ratio {}",
        note=_SPEED_UP,
    ),
    ModelColumn(
        "memory",
        lambda m: m.peak_memory_bytes,
        units.size,
        csv="peak memory (bytes)",
        short="",
        beneath=True,
    ),
    ModelColumn(
        "arena",
        lambda m: m.arena_bytes,
        units.size,
        csv="arena (bytes)",
        note=_ARENA,
        short="",
        beneath=True,
        is_under=True,
    ),
    ModelColumn(
        "accuracy",
        lambda m: m.accuracy.value if m.accuracy else None,
        own_text=lambda row: metric_value(row.model.accuracy),
        csv="value of the metric",
        is_main=True,
    ),
    ModelColumn(number=lambda m: m.accuracy.samples if m.accuracy else None, csv="samples"),
    ModelColumn(
        "drop",
        lambda m: m.accuracy_drop,
        own_text=lambda row: drop_value(row.model.accuracy_drop, row.model.accuracy),
        interval=lambda m: m.accuracy_drop_interval,
        interval_form=lambda interval, model: interval_value(interval, model.accuracy),
        interval_heading="95 % interval",
        csv="drop",
        csv_interval="drop interval {}",
        is_main=True,
        beneath=True,
    ),
    ModelColumn("flips", _sum_of_flips, own_text=_flips, note=_FLIPS, is_main=True),
    ModelColumn(number=lambda m: m.fixed, csv="samples fixed"),
    ModelColumn(number=lambda m: m.broken, csv="samples broken"),
    ModelColumn(
        "grade",
        own_text=lambda row: row.model.grade or units.ABSENT,
        note=_GRADE,
        beneath=True,
        is_text=True,
    ),
    ModelColumn(
        "float ops",
        lambda m: m.float_operators or None,
        units.count,
        csv="float operators",
        note=_FLOAT_OPS,
        beneath=True,
    ),
    ModelColumn(
        "GPU",
        own_text=lambda r: r.model.acceleration.state if r.model.acceleration else units.ABSENT,
    ),
    ModelColumn(
        "CPU flips",
        lambda m: max((k.flips for k in m.kernels if k.flips is not None), default=None),
        units.count,
        csv="other answers than on the CPU",
        note=_KERNEL_FLIPS,
        beneath=True,
    ),
    ModelColumn("training", own_text=_training, note=_TRAINING, short="", beneath=True),
    ModelColumn(
        "runs from",
        own_text=lambda row: units.plain(row.model.oldest_runtime) or units.ABSENT,
        note=_RUNS_FROM,
        short="",
        beneath=True,
        is_text=True,
    ),
)
# Those of CSV alone have no heading.
SHOWN = tuple(column for column in COLUMNS if column.heading)
_BY_HEADING = {column.heading: column for column in SHOWN}
