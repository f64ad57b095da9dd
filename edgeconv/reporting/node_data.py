"""The error or the time of each layer, for Model Explorer to show on a graph.

It is the class `ModelNodeData` of ai-edge-model-explorer 0.1: by the id of a graph,
and there by the name of a layer's output tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from edgeconv.types import Measurement

Shown = Literal["errors", "times"]
# An exact layer would leave no color for the others.
_MOST_DB = 100.0
_HEADINGS: dict[Shown, str] = {
    "errors": "SNR against float32 (dB)",
    "times": "p50 (µs)",
}
_COLORS = {"bad": "#d73a31", "middle": "#f7e7a8", "good": "#e8f4ec"}


def node_data(
    model: Measurement, graphs: Mapping[str, Collection[str]], shown: Shown
) -> bytes | None:
    """The JSON file; None if no layer of the graphs has a value.

    `graphs` has the names of the layers of every graph. Errors are signal-to-noise ratios in
    decibels, at most 100, and times are medians in microseconds; bad values are red.
    """
    values = _errors(model) if shown == "errors" else _times(model)
    data = {
        graph: {
            "name": _HEADINGS[shown],
            "results": {name: {"value": values[name]} for name in values if name in layers},
            "gradient": _gradient(shown),
        }
        for graph, layers in graphs.items()
    }
    kept = {graph: each for graph, each in data.items() if each["results"]}
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n" if kept else None


def _errors(model: Measurement) -> dict[str, float]:
    return {
        error.tensor: min(max(error.snr_db, -_MOST_DB), _MOST_DB)
        for error in model.layer_errors
        if not math.isnan(error.snr_db)
    }


def _times(model: Measurement) -> dict[str, float]:
    operators = model.profile.operators if model.profile else ()
    return {each.tensor: each.mean_us for each in operators if math.isfinite(each.mean_us)}


def _gradient(shown: Shown) -> list[dict[str, float | str]]:
    order = ("bad", "middle", "good") if shown == "errors" else ("good", "middle", "bad")
    return [
        {"stop": stop, "bgColor": _COLORS[name]}
        for stop, name in zip((0.0, 0.5, 1.0), order, strict=True)
    ]
