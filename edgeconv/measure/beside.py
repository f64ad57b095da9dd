"""Every measurement beside the trained baseline, and QAT beside plain quantisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from edgeconv.measure.accuracy import flips
from edgeconv.nouns import Comparison
from edgeconv.statistics.paired import paired_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.nouns import Artifact, Measurement


def beside(
    row: Measurement, baseline: Measurement | None, rows: Sequence[Measurement]
) -> Measurement:
    """The row with what it is beside the trained model and beside the float32 .tflite."""
    floating = next((r.latency for r in rows if r.recipe == "float32" and r.latency), None)
    ratio = row.latency.p50_us / floating.p50_us if row.latency and floating else None
    row = msgspec.structs.replace(row, latency_ratio=ratio)
    if baseline is None:
        return row
    row = msgspec.structs.replace(row, size_ratio=row.size_bytes / baseline.size_bytes)
    if not (row.accuracy and baseline.accuracy):
        return row
    fixed, broken = flips(baseline.accuracy, row.accuracy)
    drop, low, high = paired_difference(baseline.accuracy.correct, row.accuracy.correct)
    return msgspec.structs.replace(
        row,
        accuracy_drop=drop,
        accuracy_drop_interval=(low, high),
        fixed=fixed,
        broken=broken,
    )


def compared(
    rows: Sequence[Measurement], artifacts: Sequence[Artifact | None]
) -> tuple[Comparison, ...]:
    """What quantisation-aware training gained over plain int8, for every model that has both.

    `artifacts` are those of the rows, in their order.
    """
    found = {(a.name, a.recipe.name): r for r, a in zip(rows, artifacts, strict=True) if a}
    pairs = [(row, found.get((name, "int8"))) for (name, to), row in found.items() if to == "qat"]
    return tuple(
        _comparison(row, other) for row, other in pairs if other and row.accuracy and other.accuracy
    )


def _comparison(row: Measurement, other: Measurement) -> Comparison:
    assert row.accuracy is not None
    assert other.accuracy is not None
    fixed, broken = flips(other.accuracy, row.accuracy)
    difference, low, high = paired_difference(row.accuracy.correct, other.accuracy.correct)
    return Comparison(
        model=row.name,
        other=other.name,
        difference=difference,
        interval=(low, high),
        fixed=fixed,
        broken=broken,
    )
