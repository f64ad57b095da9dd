"""Which artifacts are best at something: those that nothing betters beyond noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.models_table import all_models
from edgeconv.statistics.comparison import is_faster, is_more_accurate, unbeaten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.reporting.rows import ModelRow
    from edgeconv.types import Measurement, Report

    Pair = tuple[Measurement, ModelRow]

_MOST_NAMES = 3


def highlights(report: Report, rows: Sequence[ModelRow]) -> list[tuple[str, str, str]]:
    """What the best artifacts are: heading, models and figure. Those over budget are left out.

    Models that cannot be told from the best are named together, the smallest first.
    """
    allowed = {"–"} if report.verdict is None else {"ok", "warn"}
    made = [
        (model, row)
        for model, row in zip(all_models(report), rows, strict=True)
        if not row.is_baseline and not row.error and row.mark in allowed
    ]
    if not made:
        return []
    made.sort(key=lambda pair: pair[0].size_bytes)
    least = made[0][0].size_bytes
    smallest = [pair for pair in made if pair[0].size_bytes == least]
    row = made[0][1]
    beside = f", {row.size_ratio} the baseline" if row.size_ratio != units.ABSENT else ""
    found = [("Smallest", _names(smallest), f"{row.size}{beside}")]
    if timed := [pair for pair in made if _p50(pair[0]) < math.inf]:
        found.append(_fastest(timed))
    if judged := [pair for pair in made if _goodness(pair[0]) > -math.inf]:
        found.append(_most_accurate(judged))
    return found


def unbeaten_by_size(report: Report) -> list[Measurement]:
    """The artifacts that no other beats in accuracy and size, beyond chance."""
    return _unbeaten(report.measurements, lambda a, b: a.size_bytes < b.size_bytes)


def unbeaten_by_latency(report: Report) -> list[Measurement]:
    """The same of accuracy and latency."""
    return _unbeaten([m for m in report.measurements if _p50(m) < math.inf], _is_faster)


def _fastest(timed: Sequence[Pair]) -> tuple[str, str, str]:
    """Where all are alike there is no fastest one."""
    first = min((model for model, _ in timed), key=_p50)
    alike = [pair for pair in timed if not _is_faster(first, pair[0])]
    times = sorted((_p50(model), row.p50) for model, row in alike)
    if len(alike) == 1:
        row = alike[0][1]
        interval = f" {row.speed_up_interval}" if row.speed_up_interval != units.ABSENT else ""
        beside = f", {row.speed_up}{interval} as fast as float32"
        beside = beside if row.speed_up != units.ABSENT else ""
        return "Fastest", row.name, f"{row.p50}{beside}"
    figure = f"{times[0][1]} to {times[-1][1]}, equal within noise"
    if len(alike) == len(timed):
        return "Fastest", "none beyond noise", figure
    return "Fastest", _names(alike), figure


def _most_accurate(judged: Sequence[Pair]) -> tuple[str, str, str]:
    first = max((model for model, _ in judged), key=_goodness)
    alike = [pair for pair in judged if not _is_better(first, pair[0])]
    if len(alike) == 1:
        row = alike[0][1]
        beside = f", drop {row.drop}" if row.drop != units.ABSENT else ""
        return "Most accurate", row.name, f"{row.accuracy}{beside}"
    values = dict.fromkeys(row.accuracy for _, row in sorted(alike, key=lambda p: _goodness(p[0])))
    least, most = next(iter(values)), list(values)[-1]
    figure = f"{least}, equal" if least == most else f"{least} to {most}, equal within chance"
    if len(alike) == len(judged):
        return "Most accurate", "none beyond chance", figure
    return "Most accurate", _names(alike), figure


def _names(pairs: Sequence[Pair]) -> str:
    names = [row.name for _, row in pairs]
    more = len(names) - _MOST_NAMES
    shown = names if more <= 0 else [*names[:_MOST_NAMES], f"{more} more"]
    return ", ".join(shown)


def _unbeaten(
    rows: Sequence[Measurement], is_cheaper: Callable[[Measurement, Measurement], bool]
) -> list[Measurement]:
    judged = [model for model in rows if not model.error and _goodness(model) > -math.inf]
    found = unbeaten(judged, is_cheaper, _is_better)
    return [model for model, is_best in zip(judged, found, strict=True) if is_best]


def _p50(model: Measurement) -> float:
    """The median time; infinite where there is none to compare."""
    p50_us = model.latency.p50_us if model.latency else math.inf
    return p50_us if p50_us > 0 else math.inf


def _is_faster(a: Measurement, b: Measurement) -> bool:
    return a.latency is not None and b.latency is not None and is_faster(a.latency, b.latency)


def _is_better(a: Measurement, b: Measurement) -> bool:
    if a.accuracy is None or b.accuracy is None:
        return False
    return is_more_accurate(a.accuracy, b.accuracy)


def _goodness(model: Measurement) -> float:
    if model.accuracy is None or math.isnan(model.accuracy.value):
        return -math.inf
    return model.accuracy.value * (1 if model.accuracy.higher_is_better else -1)
