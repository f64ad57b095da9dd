"""Plots with one row a model, and lines: metrics by epoch, the error of a model by layer."""

from __future__ import annotations

import math
from itertools import chain
from statistics import quantiles
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Fields, Plot, drawable
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.training import metric
from edgeconv.reporting.units import drop_value, interval_value, is_share
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import Latency, LayerError, Measurement, TrainingRecord


DOTS_A_ROW = 150
_MOST_DB = 200
_MOST_DRAWN = 1e12


def latency_plot(models: Sequence[tuple[str, Latency]]) -> Plot | None:
    """Invoke times of each model: dots, 5 to 95 %, 25 to 75 %, the median; None without samples."""
    kept = [(name, [_drawable(times) for times in latency.rounds_us]) for name, latency in models]
    shown = [(name, rounds) for name, rounds in kept if any(rounds)]
    rows = [_times(name, [*chain(*rounds)]) for name, rounds in shown]
    samples = [dot for row, (_, rounds) in enumerate(shown) for dot in _dots(row, rounds)]
    return _plot("latency", "Latency distributions", rows, samples=samples)


def start_plot(models: Sequence[tuple[str, Latency]]) -> Plot | None:
    """Load and first invoke of every process; None without any."""
    shown = [
        (name, starts)
        for name, latency in models
        if any(starts := [_drawable(latency.load_us), _drawable(latency.first_us)])
    ]
    rows = [
        {"label": name, "tip": f"{name}: load {_written(loads)}, first invoke {_written(firsts)}"}
        for name, (loads, firsts) in shown
    ]
    dots = [
        {"row": row, "kind": kind, "time": time, "tip": f"{name}: {kind} {units.duration(time)}"}
        for row, (name, starts) in enumerate(shown)
        for kind, times in zip(("load", "first invoke"), starts, strict=True)
        for time in times
    ]
    return _plot("starts", "Load and first invoke", rows, starts=dots)


def drop_plot(models: Sequence[tuple[str, Measurement]]) -> Plot | None:
    """The accuracy drop of every model, with its 95 % interval; None without any."""
    shown = [(name, model, ends) for name, model in models if (ends := _ends(model))]
    shares = bool(shown) and is_share(shown[0][1].accuracy)
    scale = 100 if shares else 1
    rows = [
        {
            "label": name,
            "tip": f"{name}: {_drop(model)}",
            **dict(zip(("drop", "low", "high"), (end * scale for end in ends), strict=False)),
            # Filled where the drop is beyond chance, hollow where chance may explain it.
            "kind": "beyond" if len(ends) > 1 and not ends[1] <= 0 <= ends[2] else "within",
        }
        for name, model, ends in shown
    ]
    unit = "percentage points" if shares else "in the metric's unit"
    return _plot("drops", "Drop from the baseline", rows, {"title": f"worse by, {unit} →"})


def snr_plot(models: Sequence[tuple[str, float | None]]) -> Plot | None:
    """The worst output's signal-to-noise ratio of every artifact; None if there is none."""
    finite = [v for _, v in models if v is not None and abs(v) < MAX_SNR_DB]
    least, most = max(min([0, *finite]), -_MOST_DB), min(max([60, *finite]), _MOST_DB)
    rows = [
        {"label": name, "tip": f"{name}: {units.decibels(value)}", **_bar(value, least, most)}
        for name, value in models
    ]
    return _plot(
        "closeness", "Closeness of the outputs", rows, {"scale": {"domain": [least, most]}}
    )


def _plot(
    chart: str, title: str, rows: list[Fields], x: Fields | None = None, **data: list[Fields]
) -> Plot | None:
    if not rows:
        return None
    return Plot(
        chart=chart,
        title=title,
        description="; ".join(row["tip"] for row in rows),
        data={"rows": [{"row": number, **row} for number, row in enumerate(rows)], **data},
        axes={"x": x or {}},
    )


def _times(name: str, samples: Sequence[float]) -> Fields:
    """The 5, 25, 50, 75 and 95 % quantiles."""
    cuts = quantiles(samples, n=20, method="inclusive") if len(samples) > 1 else [*samples] * 19
    p5, p25, p50, p75, p95 = (cuts[at] for at in (0, 4, 9, 14, 18))
    tip = f"{name}: median {units.duration(p50)}"
    return {"label": name, "tip": tip, "p5": p5, "p25": p25, "p50": p50, "p75": p75, "p95": p95}


def _dots(row: int, rounds: Sequence[Sequence[float]]) -> Iterator[Fields]:
    """At most about `DOTS_A_ROW` of the samples, each process on its own line.

    They are points of a line with a gap after each: the page has one element for all of them.
    """
    every = max(1, math.ceil(sum(map(len, rounds)) / DOTS_A_ROW))
    for number, samples in enumerate(rounds):
        process = number / (len(rounds) - 1) if len(rounds) > 1 else 0.5
        for time in samples[::every]:
            yield {"row": row, "process": process, "time": time}
            yield {"row": row, "process": process, "time": None}


def _bar(value: float | None, least: float, most: float) -> Fields:
    """A bar from 0, and the text next to it; an unknown value has no bar."""
    end = None if value is None or math.isnan(value) else min(max(value, least), most)
    kind = "exact" if value == MAX_SNR_DB else "negative" if (end or 0) < 0 else "noisy"
    written = units.decibels(value)
    return {"snr": end, "kind": kind, "end": max(end or 0, 0), "written": written}


def _ends(model: Measurement) -> tuple[float, ...]:
    if model.accuracy_drop is None or model.role == "baseline":
        return ()
    ends = (model.accuracy_drop, *(model.accuracy_drop_interval or ()))
    return ends if all(abs(end) < _MOST_DRAWN for end in ends) else ()


def _drop(model: Measurement) -> str:
    return units.with_interval(
        drop_value(model.accuracy_drop, model.accuracy),
        interval_value(model.accuracy_drop_interval, model.accuracy),
    )


def _drawable(times: Sequence[float]) -> list[float]:
    return [time for time in times if drawable(time)]


def _written(times: Sequence[float]) -> str:
    return ", ".join(map(units.duration, times)) or units.ABSENT


_MOST_EPOCH_DOTS = 30
_MOST_LAYER_DOTS = 120
_MOST_LAYER_DB = 100.0


def metric_plots(record: TrainingRecord | None) -> list[tuple[str, Plot]]:
    """Every metric of a training by name, with its plot; those without a number are left out.

    The line of the training samples is solid, the validation's dashed; the epoch that was
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
            "value": min(max(error.snr_db, -_MOST_LAYER_DB), _MOST_LAYER_DB)
            if number in known
            else None,
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
