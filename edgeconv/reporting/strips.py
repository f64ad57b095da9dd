"""Plots with one row a model: drops, closeness, latency samples, load and first invoke."""

from __future__ import annotations

import math
from itertools import chain
from statistics import quantiles
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Fields, Plot, drawable
from edgeconv.reporting.units import drop_value, interval_value, is_share
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import Latency, Measurement

DOTS_A_ROW = 150
_MOST_DB = 200
_MOST_DROP = 1e12


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
    """The worst output's signal-to-noise ratio of every artifact; None where there is none."""
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
    return ends if all(abs(end) < _MOST_DROP for end in ends) else ()


def _drop(model: Measurement) -> str:
    return units.with_interval(
        drop_value(model.accuracy_drop, model.accuracy),
        interval_value(model.accuracy_drop_interval, model.accuracy),
    )


def _drawable(times: Sequence[float]) -> list[float]:
    return [time for time in times if drawable(time)]


def _written(times: Sequence[float]) -> str:
    return ", ".join(map(units.duration, times)) or units.ABSENT
