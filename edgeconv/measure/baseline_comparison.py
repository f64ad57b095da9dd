"""Every measurement compared with the trained baseline, and QAT with plain int8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.measure.metrics.accuracy import flips
from edgeconv.statistics.comparison import latency_ratio_interval
from edgeconv.statistics.paired import drop_of
from edgeconv.types import Comparison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Artifact, Measurement


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

    `artifacts` are those of the rows, in their order.
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
