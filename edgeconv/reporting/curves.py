"""Plots of lines: the metrics of a training by epoch, the error of a model along its graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Fields, Plot
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.training import metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import LayerError, TrainingRecord

_MOST_EPOCH_DOTS = 30
_MOST_LAYER_DOTS = 120
_MOST_DRAWN = 1e12
_MOST_DB = 100.0


def metric_plots(record: TrainingRecord | None) -> list[tuple[str, Plot]]:
    """Every metric of a training by name, with its plot; those without a number are left out.

    A solid line for the training samples, a dashed one for the validation, and a large point
    at the epoch that was kept.
    """
    if record is None:
        return []
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    plots = ((units.plain(name), _metric_plot(name, record)) for name in names)
    return [(name, plot) for name, plot in plots if plot]


def layer_plot(errors: Sequence[LayerError], name: str) -> Plot | None:
    """The signal-to-noise ratio of every layer, in the order of the graph; None of nothing.

    Ratios beyond 100 dB, exact ones among them, stand at the top; NaN leaves a gap.
    """
    known = {n: e.snr_db for n, e in enumerate(errors, start=1) if not math.isnan(e.snr_db)}
    if not known:
        return None
    layers: list[Fields] = [
        {
            "place": place,
            "snr": min(max(error.snr_db, -_MOST_DB), _MOST_DB) if place in known else None,
            "tip": f"{place}: {layer_name(error.layer)} ({units.plain(error.operator)}), "
            f"{units.decibels(error.snr_db)}",
        }
        for place, error in enumerate(errors, start=1)
    ]
    worst = min(known, key=lambda place: known[place])
    name_of_worst = layer_name(errors[worst - 1].layer)
    knots = [layer for layer in layers if layer["place"] in known]
    return Plot(
        chart="layers",
        title=f"{name}, layer by layer",
        description=f"The worst of {len(errors)} layers is number {worst}, {name_of_worst}: "
        f"{units.decibels(known[worst])}.",
        data={"layers": layers, "knots": knots if len(knots) <= _MOST_LAYER_DOTS else []},
    )


def _metric_plot(name: str, record: TrainingRecord) -> Plot | None:
    series = {
        "training": [epoch.metrics.get(name) for epoch in record.epochs],
        "validation": [epoch.validation.get(name) for epoch in record.epochs],
    }
    values = [value for kind, logged in series.items() for value in _values(kind, logged)]
    known = [value for value in values if value["value"] is not None]
    if not known:
        return None
    last = max(value["epoch"] for value in known)
    said = ", ".join(value["tip"].split(": ")[1] for value in known if value["epoch"] == last)
    kept = record.best_epoch
    dots = [
        {**value, "size": 78 if value["epoch"] == kept else 24}
        for value in known
        if value["epoch"] == kept or len(record.epochs) <= _MOST_EPOCH_DOTS
    ]
    return Plot(
        chart="epochs",
        title=f"{units.plain(name)}, epoch by epoch",
        description=f"At epoch {last}: {said}.",
        data={"values": values, "knots": dots},
        axes={
            "y": {"title": units.plain(name)},
            "color": {"legend": {"values": sorted({value["samples"] for value in known})}},
        },
    )


def _values(kind: str, logged: Sequence[float | None]) -> list[Fields]:
    """What was logged of a kind of samples, by epoch; None of all when nothing can be drawn."""
    values = [None if v is None or not abs(v) < _MOST_DRAWN else v for v in logged]
    if all(value is None for value in values):
        return []
    return [
        {
            "epoch": epoch,
            "samples": kind,
            "value": value,
            "tip": f"epoch {epoch}: {kind} {metric(value)}",
        }
        for epoch, value in enumerate(values, start=1)
    ]
