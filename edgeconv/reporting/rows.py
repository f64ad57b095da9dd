"""The cells of each measured model, as harmless text, for the text and HTML reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.closeness import agreement_line
from edgeconv.reporting.limits import Mark, mark_of
from edgeconv.reporting.pace import pace_lines
from edgeconv.reporting.training import is_smaller_packed, qat_remarks
from edgeconv.reporting.units import (
    drop_value,
    duration_interval,
    factor_interval,
    interval_value,
    metric_heading,
    metric_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import (
        Accuracy,
        Artifact,
        Comparison,
        Measurement,
        QatRecord,
        Report,
        Signature,
        TrainingRecord,
    )


# As fast as float32, within noise.
SAME_SPEED = "≈1×"


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One measured model, as harmless text.

    `speed_up` is "≈1×" where its interval contains 1. `gzip` is the packed size, where any model
    was pruned or clustered. `paced` and `cold` are the medians of invokes in a fixed period and of
    cold starts, of which `pace` has a line each. `metrics` are further metrics, by heading.
    `agreement` has a sentence for each output. `flips` is "+fixed −broken". `gpu` is what a GPU
    delegate did, `kernel_flips` how many answers are others than the processor's for the same file.
    `training` is the time of quantization-aware training, where any artifact had it; `remarks` say
    more.
    """

    name: str
    is_baseline: bool
    runtime: str
    size: str
    size_ratio: str
    gzip: str
    p50: str
    p50_interval: str
    p90: str
    p99: str
    paced: str
    paced_interval: str
    cold: str
    cold_interval: str
    pace: tuple[str, ...]
    speed_up: str
    speed_up_interval: str
    memory: str
    arena: str
    accuracy: str
    metrics: dict[str, str]
    agreement: tuple[str, ...]
    drop: str
    drop_interval: str
    flips: str
    gpu: str
    kernel_flips: str
    training: str
    oldest_runtime: str
    mark: Mark
    error: str
    remarks: tuple[str, ...]


def model_rows(report: Report) -> tuple[ModelRow, ...]:
    """The baseline, if there is one, and then the artifacts in their order."""
    trained = {a.sha256: a.qat for a in report.artifacts if a.qat}
    packed = any(is_smaller_packed(record) for record in trained.values())
    return tuple(
        _model_row(m, trained.get(m.sha256), report, has_gzip=packed, has_training=bool(trained))
        for m in all_models(report)
    )


def weights(artifact: Artifact) -> str:
    """The shares of the weights that are stored as integers and as float16."""
    shares = (artifact.quantized_weight_share, "int"), (artifact.float16_weight_share, "f16")
    return ", ".join(f"{units.percent(s, 1)} {kind}" for s, kind in shares if s != 0) or "float"


def io_types(signature: Signature) -> str:
    """The dtypes of inputs and outputs: "float32" where all are equal, else "int8 → float32"."""
    sides = (signature.inputs, signature.outputs)
    into, out = (", ".join(dict.fromkeys(units.plain(t.dtype) for t in side)) for side in sides)
    return into if into == out else f"{into} → {out}"


def accuracy_heading(report: Report) -> str:
    """The heading of the first metric: "accuracy" for top1, else its name."""
    accuracy = first_accuracy(report)
    is_plain = accuracy is None or accuracy.metric == "top1"
    return "accuracy" if accuracy is None or is_plain else metric_heading(accuracy)


def difference_lines(report: Report) -> list[str]:
    """Which drops are within chance, and a line for each comparison of two artifacts."""
    drops = "; ".join(_drops(report))
    compared = [_compared(comparison) for comparison in report.comparisons]
    return [*([f"drop: {drops}"] if drops else []), *compared]


def _drops(report: Report) -> Iterator[str]:
    intervals = [
        (units.plain(model.name), model.accuracy_drop_interval)
        for model in report.measurements
        if model.accuracy_drop_interval is not None
    ]
    within = [name for name, (low, high) in intervals if low <= 0 <= high]
    if within:
        yield f"within chance for {', '.join(within)} (0 is in the 95 % interval)"
    worse = [name for name, (low, _) in intervals if low > 0]
    if worse:
        yield f"worse beyond chance for {', '.join(worse)}"
    better = [name for name, (_, high) in intervals if high < 0]
    if better:
        yield f"better beyond chance for {', '.join(better)}"


def _compared(comparison: Comparison) -> str:
    low, high = comparison.interval
    verdict = "better beyond" if low > 0 else "worse beyond" if high < 0 else "within"
    sign = "+" if comparison.difference > 0 else ""
    points = units.points(comparison.difference).replace(" pp", " points")
    return (
        f"{units.plain(comparison.model)} against {units.plain(comparison.other)}: "
        f"{sign}{points} {interval_value(comparison.interval, '')}, "
        f"{comparison.fixed} fixed, {comparison.broken} broken: {verdict} chance"
    )


def all_models(report: Report) -> list[Measurement]:
    """The baseline, if there is one, and then the other measured models."""
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def kernel_flips(model: Measurement) -> int | None:
    """The samples whose answer is another one than on the processor; None where that is unknown."""
    flips = [each.flips for each in model.kernels if each.flips is not None]
    return max(flips, default=None)


def first_accuracy(report: Report) -> Accuracy | None:
    """The first accuracy that was measured, whose metric stands for the report."""
    return next((model.accuracy for model in all_models(report) if model.accuracy), None)


def _model_row(
    model: Measurement, qat: QatRecord | None, report: Report, *, has_gzip: bool, has_training: bool
) -> ModelRow:
    latency, accuracy, paced, cold = model.latency, model.accuracy, model.paced, model.cold
    is_baseline = model.role == "baseline"
    return ModelRow(
        name=units.plain(model.name),
        is_baseline=is_baseline,
        runtime=units.plain(model.runtime),
        size=units.size(model.size_bytes),
        size_ratio=units.times(model.size_ratio),
        gzip=units.size(model.gzip_size_bytes if has_gzip else None),
        p50=units.duration(latency.p50_us if latency else None),
        p50_interval=duration_interval(latency.p50_interval_us if latency else None),
        p90=units.duration(latency.p90_us if latency else None),
        p99=units.duration(latency.p99_us if latency else None),
        paced=units.duration(paced.p50_us if paced else None),
        paced_interval=duration_interval(paced.p50_interval_us if paced else None),
        cold=units.duration(cold.p50_us if cold else None),
        cold_interval=duration_interval(cold.p50_interval_us if cold else None),
        pace=pace_lines(model),
        speed_up=_speed_up(model),
        speed_up_interval=factor_interval(model.latency_ratio_interval),
        memory=units.size(model.peak_memory_bytes),
        arena=units.size(model.arena_bytes),
        accuracy=metric_value(accuracy),
        metrics={metric_heading(each): metric_value(each) for each in model.metrics},
        agreement=tuple(agreement_line(each) for each in (*model.agreement, *model.kernels)),
        drop=drop_value(model.accuracy_drop, accuracy),
        drop_interval=interval_value(model.accuracy_drop_interval, accuracy),
        flips=_flips(model.fixed, model.broken),
        gpu=model.acceleration.state if model.acceleration else units.ABSENT,
        kernel_flips=_kernel_flips(model),
        training=_training(qat, report.training if is_baseline and has_training else None),
        oldest_runtime=units.plain(model.oldest_runtime) or units.ABSENT,
        mark=mark_of(model.name, report.verdict),
        error=units.first_line(model.error),
        remarks=tuple(qat_remarks(qat)) if qat else (),
    )


def _speed_up(model: Measurement) -> str:
    interval = model.latency_ratio_interval
    if interval is not None and interval[0] <= 1 <= interval[1]:
        return SAME_SPEED
    return units.times(units.speed_up(model.latency_ratio))


def _training(qat: QatRecord | None, training: TrainingRecord | None) -> str:
    if qat is not None:
        return units.duration(qat.seconds * 1e6)
    if training is None:
        return units.ABSENT
    if training.resumed_at:
        return f">{units.duration(training.seconds * 1e6)}"
    return units.duration(training.wall_seconds * 1e6)


def _flips(fixed: int | None, broken: int | None) -> str:
    return units.ABSENT if fixed is None or broken is None else f"+{fixed} −{broken}"


def _kernel_flips(model: Measurement) -> str:
    flips = kernel_flips(model)
    return units.ABSENT if flips is None else str(flips)
