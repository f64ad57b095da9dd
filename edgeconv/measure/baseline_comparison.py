"""Every measurement compared with the trained baseline, QAT with plain int8, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.data import input_ranges
from edgeconv.measure.metrics.accuracy import commonest_share, flips
from edgeconv.statistics.comparison import drop_of, latency_ratio_interval
from edgeconv.types import Comparison

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import EvaluationSet
    from edgeconv.types import Artifact, InputRange, Measurement, TrainingRecord

# Below this many times what guessing the commonest class gives, a model is next to useless.
_NEAR_CHANCE = 1.5
# A test set is rarely this much harder than another of the same kind.
_FAR_BELOW = 0.1
# Sets of one kind are seldom this many times as wide as one another, or this many deviations apart.
_SCALES_APART = 4.0
# Nor this many times where only one of both has values below zero, and many of them.
_SIGNED_APART, _BELOW_ZERO = 1.5, 0.25
# What Keras calls the share of samples whose best class is the label.
_TOP1 = ("accuracy", "sparse_categorical_accuracy", "categorical_accuracy")


def with_baseline(
    row: Measurement, baseline: Measurement | None, rows: Sequence[Measurement]
) -> Measurement:
    """The row compared with the trained model and with the float32 .tflite."""
    floating = row.float_latency(rows)
    ratio = row.latency.p50_us / floating.p50_us if row.latency and floating else None
    interval = None
    if row.latency and floating and floating is not row.latency:
        interval = latency_ratio_interval(row.latency, floating)
    row = msgspec.structs.replace(row, latency_ratio=ratio, latency_ratio_interval=interval)
    if baseline is None:
        return row
    row = msgspec.structs.replace(row, size_ratio=row.size_bytes / baseline.size_bytes)
    if not (row.accuracy and baseline.accuracy):
        return row
    is_same = row.sha256 == baseline.sha256 and row.accuracy == baseline.accuracy
    drop, bounds = (0.0, (0.0, 0.0)) if is_same else drop_of(baseline.accuracy, row.accuracy)
    counts = flips(baseline.accuracy, row.accuracy) if row.accuracy.correct else (None, None)
    return msgspec.structs.replace(
        row,
        accuracy_drop=drop,
        accuracy_drop_interval=bounds,
        fixed=counts[0],
        broken=counts[1],
    )


def compared(
    rows: Sequence[Measurement], artifacts: Sequence[Artifact | None]
) -> tuple[Comparison, ...]:
    """What quantization-aware training gained over plain int8, for every model that has both.

    `artifacts` belong to the rows, in their order.
    """
    by_recipe = {
        (row.group, artifact.name, artifact.recipe.name): row
        for row, artifact in zip(rows, artifacts, strict=True)
        if artifact
    }
    pairs = [
        (row, by_recipe.get((group, name, "int8")))
        for (group, name, to), row in by_recipe.items()
        if to == "qat"
    ]
    return tuple(
        _comparison(row, other) for row, other in pairs if other and row.accuracy and other.accuracy
    )


def _comparison(row: Measurement, other: Measurement) -> Comparison:
    assert row.accuracy is not None
    assert other.accuracy is not None
    fixed, broken = flips(other.accuracy, row.accuracy)
    gain, interval = drop_of(row.accuracy, other.accuracy)
    return Comparison(
        model=row.name,
        other=other.name,
        difference=gain,
        interval=interval or (gain, gain),
        fixed=fixed,
        broken=broken,
    )


def measurement_warnings(
    baseline: Measurement | None,
    samples: EvaluationSet,
    training: TrainingRecord | None,
    artifacts: Sequence[Artifact],
) -> tuple[str, ...]:
    """All signs of that in what was measured on these samples."""
    return (
        *accuracy_warnings(baseline, samples.labels, training),
        *training_data_warnings(artifacts, samples.text),
        *range_warnings(artifacts, () if samples.is_made_up else _float_ranges(samples)),
    )


def _float_ranges(samples: EvaluationSet) -> tuple[InputRange, ...]:
    """Those of inputs that are not quantized yet, over the first samples."""
    arrays = samples.first.arrays
    return tuple(r for r in input_ranges(samples.first) if arrays[r.name].dtype.kind == "f")


def accuracy_warnings(
    baseline: Measurement | None,
    labels: NDArray[np.generic] | None,
    training: TrainingRecord | None,
) -> tuple[str, ...]:
    """A warning of a trained model that is far worse on `labels`, (n,), than it should be."""
    if baseline is None or labels is None:
        return ()
    if baseline.accuracy is None or baseline.accuracy.metric != "top1":
        return ()
    accuracy = baseline.accuracy.value
    stated = _stated(training) if training else None
    advice = "`edgeconv doctor MODEL DATA` finds which preprocessing it was trained with"
    if stated is not None and accuracy < stated - _FAR_BELOW:
        return (
            f"the trained model has {accuracy:.3f} here and {stated:.3f} in its record: {advice}",
        )
    commonest = commonest_share(labels)
    if accuracy < min(_NEAR_CHANCE * commonest, (1 + commonest) / 2):
        return (
            f"the trained model has {accuracy:.3f}, and always guessing the commonest label "
            f"{commonest:.3f}: {advice}",
        )
    return ()


def training_data_warnings(artifacts: Sequence[Artifact], source: str) -> tuple[str, ...]:
    """Warnings of artifacts that were trained on the SOURCE that they are measured on."""
    return tuple(
        f"{artifact.recipe.name} was trained on {source}, the samples it is measured on here: "
        "measure it on others"
        for artifact in artifacts
        if artifact.qat is not None and artifact.qat.source == source
    )


def _stated(training: TrainingRecord) -> float | None:
    """The top-1 accuracy on the test samples in a record."""
    return next((training.test_metrics[n] for n in _TOP1 if n in training.test_metrics), None)


def range_warnings(
    artifacts: Sequence[Artifact], measured: Sequence[InputRange]
) -> tuple[str, ...]:
    """Warnings of artifacts that were calibrated in another scale than `measured`.

    The ranges belong to the inputs of the model that is measured.
    """
    by_name = {each.name: each for each in measured}
    pairs = {
        (calibrated.text, by_name[calibrated.name].text): artifact.recipe.name
        for artifact in artifacts
        for record in artifact.calibration
        for calibrated in record.inputs
        if calibrated.name in by_name and _is_other_scale(calibrated, by_name[calibrated.name])
    }
    return tuple(
        f"{recipe} was calibrated on samples at a different scale than those here: {calibrated}; "
        f"here {here}: one of the two has the wrong preprocessing"
        for (calibrated, here), recipe in pairs.items()
    )


def _is_other_scale(calibrated: InputRange, measured: InputRange) -> bool:
    low, high = sorted((calibrated.deviation, measured.deviation))
    apart = abs(calibrated.mean - measured.mean)
    if high > _SCALES_APART * low or apart > _SCALES_APART * high:
        return True
    signed, unsigned = sorted((calibrated, measured), key=lambda each: each.low)
    is_signed = -signed.low > _BELOW_ZERO * (signed.high - signed.low) and unsigned.low >= 0
    return is_signed and high > _SIGNED_APART * low
