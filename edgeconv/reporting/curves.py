"""Line plots: the metrics of a training by epoch, the error of a model layer by layer."""

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

    The line of the training samples is solid, that of the validation dashed; the epoch that was
    kept has a large point.
    """
    if record is None:
        return []
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    plots = ((units.plain(name), _metric_plot(name, record)) for name in names)
    return [(name, plot) for name, plot in plots if plot]


def layer_plot(errors: Sequence[LayerError], name: str) -> Plot | None:
    """The signal-to-noise ratio of every layer, in the order of the graph; None without any.

    Ratios above 100 dB are drawn at 100 dB; NaN leaves a gap.
    """
    known = {n: e.snr_db for n, e in enumerate(errors, start=1) if not math.isnan(e.snr_db)}
    if not known:
        return None
    values: list[Fields] = [
        {
            "series": "layer",
            "number": number,
            "value": min(max(error.snr_db, -_MOST_DB), _MOST_DB) if number in known else None,
            "tip": f"{number}: {layer_name(error.layer)} ({units.plain(error.operator)}), "
            f"{units.decibels(error.snr_db)}",
        }
        for number, error in enumerate(errors, start=1)
    ]
    dots = [{**value, "size": 32} for value in values if value["number"] in known]
    worst = min(known, key=known.__getitem__)
    return Plot(
        chart="lines",
        title=f"{name}, layer by layer",
        description=f"The worst of {len(errors)} layers is number {worst}, "
        f"{layer_name(errors[worst - 1].layer)}: {units.decibels(known[worst])}.",
        data={"values": values, "dots": dots if len(dots) <= _MOST_LAYER_DOTS else []},
        axes={
            "x": {"title": "position in the graph →"},
            "y": {"title": "↑ signal to noise, dB", "scale": {"nice": 5}},
            "color": {"legend": None},
            "strokeDash": {"legend": None},
        },
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
    last = max(value["number"] for value in known)
    final = ", ".join(value["tip"].split(": ")[1] for value in known if value["number"] == last)
    kept = record.best_epoch
    legend = {"values": sorted({value["series"] for value in known})}
    dots = [
        {**value, "size": 78 if value["number"] == kept else 24}
        for value in known
        if value["number"] == kept or len(record.epochs) <= _MOST_EPOCH_DOTS
    ]
    return Plot(
        chart="lines",
        title=f"{units.plain(name)}, epoch by epoch",
        description=f"At epoch {last}: {final}.",
        data={"values": values, "dots": dots},
        axes={
            "x": {"title": "epoch →"},
            "y": {"title": units.plain(name), "scale": {"zero": False, "nice": 5}},
            "color": {"legend": legend},
            "strokeDash": {"legend": legend},
        },
    )


def _values(kind: str, logged: Sequence[float | None]) -> list[Fields]:
    """What was logged of one kind of samples, by epoch; empty where nothing can be drawn."""
    values = [v if v is not None and abs(v) < _MOST_DRAWN else None for v in logged]
    if values.count(None) == len(values):
        return []
    return [
        {"series": kind, "number": n, "value": v, "tip": f"epoch {n}: {kind} {metric(v)}"}
        for n, v in enumerate(values, start=1)
    ]
