"""What a table says of each model, as harmless text: the text and HTML reports share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.closeness import agreement_line
from edgeconv.reporting.limits import Mark, mark_of
from edgeconv.reporting.qat import is_smaller_packed, qat_remarks
from edgeconv.reporting.values import (
    drop_value,
    duration_interval,
    factor_interval,
    interval_value,
    metric_heading,
    metric_value,
)

if TYPE_CHECKING:
    from edgeconv.types import (
        Accuracy,
        Artifact,
        Measurement,
        QatRecord,
        Report,
        Signature,
        TrainingRecord,
    )


# As fast as float32, so far as can be told.
SAME_SPEED = "≈1×"


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One measured model. All strings can be shown as they are; `flips` is "+fixed −broken".

    `speed_up` is "≈1×" where the interval of it has 1. `gzip` is the size in a package, where the
    weights of any model were made for that.
    `metrics` are the further ones, by heading. `agreement` has a sentence for each output.
    `training` is the time of its training, where any artifact was trained on; `remarks` say more.
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
    training: str
    oldest_runtime: str
    mark: Mark
    error: str
    remarks: tuple[str, ...]


def model_rows(report: Report) -> tuple[ModelRow, ...]:
    """The baseline, if there is one, and then the artifacts in their order."""
    baseline = (report.baseline,) if report.baseline else ()
    trained = {a.sha256: a.qat for a in report.artifacts if a.qat}
    packed = any(is_smaller_packed(record) for record in trained.values())
    return tuple(
        _model_row(m, trained.get(m.sha256), report, has_gzip=packed, has_training=bool(trained))
        for m in (*baseline, *report.measurements)
    )


def weights(artifact: Artifact) -> str:
    """Which share of the weights is stored as small integers, and which as float16."""
    shares = (artifact.quantized_weight_share, "int"), (artifact.float16_weight_share, "f16")
    return ", ".join(f"{units.percent(s, 1)} {kind}" for s, kind in shares if s != 0) or "float"


def io_types(signature: Signature) -> str:
    """The types of inputs and outputs: "float32" where all are equal, else "int8 → float32"."""
    sides = (signature.inputs, signature.outputs)
    into, out = (", ".join(dict.fromkeys(units.plain(t.dtype) for t in side)) for side in sides)
    return into if into == out else f"{into} → {out}"


def accuracy_heading(report: Report) -> str:
    """What the column of the first metric is called: its name, but for plain accuracy."""
    found = _first_accuracy(report)
    if found is None or found.metric == "top1":
        return "accuracy"
    return metric_heading(found)


def _first_accuracy(report: Report) -> Accuracy | None:
    models = (*((report.baseline,) if report.baseline else ()), *report.measurements)
    return next((model.accuracy for model in models if model.accuracy), None)


def _model_row(
    model: Measurement, qat: QatRecord | None, report: Report, *, has_gzip: bool, has_training: bool
) -> ModelRow:
    latency, accuracy = model.latency, model.accuracy
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
        speed_up=_speed_up(model),
        speed_up_interval=factor_interval(model.latency_ratio_interval),
        memory=units.size(model.peak_memory_bytes),
        arena=units.size(model.arena_bytes),
        accuracy=metric_value(accuracy),
        metrics={metric_heading(each): metric_value(each) for each in model.metrics},
        agreement=tuple(agreement_line(each) for each in model.agreement),
        drop=drop_value(model.accuracy_drop, accuracy),
        drop_interval=interval_value(model.accuracy_drop_interval, accuracy),
        flips=_flips(model.fixed, model.broken),
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
    """The time of a whole training; of a resumed one, at least that of its steps."""
    if qat is not None:
        return units.duration(qat.seconds * 1e6)
    if training is None:
        return units.ABSENT
    if training.resumed_at:
        return f">{units.duration(training.seconds * 1e6)}"
    return units.duration(training.wall_seconds * 1e6)


def _flips(fixed: int | None, broken: int | None) -> str:
    if fixed is None or broken is None:
        return units.ABSENT
    return f"+{fixed} −{broken}"
