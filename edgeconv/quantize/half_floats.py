"""Layers that may overflow in the 16-bit floats of a GPU, by what the calibration samples show.

A GPU's delegate computes in 16-bit floats unless an app forbids it. SwiftShader has none, so that
running there does not show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.quantize.worker import GraphFile, calibrated, settle_process
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.tflite.cut import with_fixed_shapes
from edgeconv.tflite.magnitudes import with_magnitudes

if TYPE_CHECKING:
    from edgeconv.quantize.calibrate import CalibratedGraph

LARGEST = 65504.0
_MOST_BATCHES = 64


class HalfFloatJob(msgspec.Struct, frozen=True, kw_only=True):
    """The float graph to look at, with samples for its signatures."""

    graph: GraphFile


class LayerMagnitude(msgspec.Struct, frozen=True, kw_only=True):
    """The largest absolute value of a layer, and what its partial sums cannot exceed; 0 for none.

    Both are over the calibration samples.
    """

    layer: str
    operator: str
    largest: float
    largest_sum: float

    @property
    def overflows(self) -> bool:
        """Whether 16 bits may not hold it."""
        return max(self.largest, self.largest_sum) > LARGEST


class LayerMagnitudes(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `HalfFloatJob`, in the order of the graph."""

    layers: tuple[LayerMagnitude, ...]


def layer_magnitudes(job: HalfFloatJob) -> LayerMagnitudes:
    """The magnitudes of all layers; runs in a child. Raises `ToolFailed`."""
    settle_process()
    return LayerMagnitudes(layers=tuple(magnitudes(calibrated(job.graph))))


def magnitudes(graph: CalibratedGraph) -> list[LayerMagnitude]:
    """Those of a graph, over up to 64 batches of each signature. Raises `ToolFailed`."""
    every: list[LayerMagnitude] = []
    for key, feed in graph.feeds.items():
        data, layers = with_magnitudes(with_fixed_shapes(graph.model, key, feed.shapes))
        model = InProcessModel(open_interpreter(data, threads=graph.threads))
        largest = dict.fromkeys((n for each in layers for n in (each.values, each.sums)), 0.0)
        for batch in feed.take(range(min(len(feed), _MOST_BATCHES))):
            for name, values in model.invoke(batch).items():
                largest[name] = max(largest[name], float(np.abs(values).max(initial=0.0)))
        every += [
            LayerMagnitude(
                layer=each.layer,
                operator=each.operator,
                largest=largest[each.values],
                largest_sum=largest[each.sums] if each.sums else 0.0,
            )
            for each in layers
        ]
    return every


def overflow_warning(layers: tuple[LayerMagnitude, ...]) -> str:
    """Which layers may overflow, the first few by name; "" where none does."""
    large = [each for each in layers if each.overflows]
    if not large:
        return ""
    parts = [
        f"{each.layer} ({each.operator}: values to {each.largest:,.0f}, "
        f"sums to {max(each.largest_sum, each.largest):,.0f})"
        for each in large[:3]
    ]
    more = f" and {len(large) - 3} more" if len(large) > 3 else ""
    return (
        f"in the 16-bit floats of a GPU, which end at {LARGEST:,.0f}, {', '.join(parts)}{more} may "
        "overflow; SwiftShader has none and does not show it: demand 32-bit floats in the app"
    )
