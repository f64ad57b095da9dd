"""The smallest, fastest and most accurate artifacts, beyond noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.rows import all_models
from edgeconv.statistics.comparison import is_faster, is_more_accurate, pareto_front
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.reporting.rows import ModelRow
    from edgeconv.types import Measurement, Report

    _Pair = tuple[Measurement, ModelRow]

_MOST_NAMES = 3


def highlights(report: Report, rows: Sequence[ModelRow]) -> list[tuple[str, str, str]]:
    """The best artifacts within budget: heading, models and figure.

    Models that are equal to the best within noise are named together, the smallest first.
    """
    allowed = {"–"} if report.verdict is None else {"ok", "warn"}
    candidates = [
        (model, row)
        for model, row in zip(all_models(report), rows, strict=True)
        if not row.is_baseline and not row.error and row.mark in allowed
    ]
    if not candidates:
        return []
    candidates.sort(key=lambda pair: pair[0].size_bytes)
    least = candidates[0][0].size_bytes
    smallest = [pair for pair in candidates if pair[0].size_bytes == least]
    row = candidates[0][1]
    ratio = f", {row.size_ratio} the baseline" if row.size_ratio != units.ABSENT else ""
    best = [("Smallest", _names(smallest), f"{row.size}{ratio}")]
    if timed := [pair for pair in candidates if _p50(pair[0]) < math.inf]:
        best.append(_fastest(timed))
    if evaluated := [pair for pair in candidates if _goodness(pair[0]) > -math.inf]:
        best.append(_most_accurate(evaluated))
    return best


def unbeaten_by_size(report: Report) -> list[Measurement]:
    """The artifacts that no other beats in accuracy and size, beyond chance."""
    return _pareto_front(report.measurements, lambda a, b: a.size_bytes < b.size_bytes)


def unbeaten_by_latency(report: Report) -> list[Measurement]:
    """The same of accuracy and latency."""
    return _pareto_front([m for m in report.measurements if _p50(m) < math.inf], _is_faster)


def _fastest(timed: Sequence[_Pair]) -> tuple[str, str, str]:
    first = min((model for model, _ in timed), key=_p50)
    alike = [pair for pair in timed if not _is_faster(first, pair[0])]
    times = sorted((_p50(model), row.p50) for model, row in alike)
    if len(alike) == 1:
        row = alike[0][1]
        interval = f" {row.speed_up_interval}" if row.speed_up_interval != units.ABSENT else ""
        ratio = f", {row.speed_up}{interval} as fast as float32"
        return "Fastest", row.name, f"{row.p50}{ratio if row.speed_up != units.ABSENT else ''}"
    figure = f"{times[0][1]} to {times[-1][1]}, equal within noise"
    if len(alike) == len(timed):
        return "Fastest", "none beyond noise", figure
    return "Fastest", _names(alike), figure


def _most_accurate(evaluated: Sequence[_Pair]) -> tuple[str, str, str]:
    first = max((model for model, _ in evaluated), key=_goodness)
    alike = [pair for pair in evaluated if not _is_better(first, pair[0])]
    if len(alike) == 1:
        row = alike[0][1]
        drop = f", drop {row.drop}" if row.drop != units.ABSENT else ""
        return "Most accurate", row.name, f"{row.accuracy}{drop}"
    values = dict.fromkeys(row.accuracy for _, row in sorted(alike, key=lambda p: _goodness(p[0])))
    least, most = next(iter(values)), list(values)[-1]
    figure = f"{least}, equal" if least == most else f"{least} to {most}, equal within chance"
    if len(alike) == len(evaluated):
        return "Most accurate", "none beyond chance", figure
    return "Most accurate", _names(alike), figure


def _names(pairs: Sequence[_Pair]) -> str:
    return listed((row.name for _, row in pairs), _MOST_NAMES)


def _pareto_front(
    rows: Sequence[Measurement], is_cheaper: Callable[[Measurement, Measurement], bool]
) -> list[Measurement]:
    evaluated = [model for model in rows if not model.error and _goodness(model) > -math.inf]
    best = pareto_front(evaluated, is_cheaper, _is_better)
    return [model for model, is_best in zip(evaluated, best, strict=True) if is_best]


def _p50(model: Measurement) -> float:
    p50_us = model.latency.p50_us if model.latency else math.inf
    return p50_us if p50_us > 0 else math.inf


def _is_faster(a: Measurement, b: Measurement) -> bool:
    return a.latency is not None and b.latency is not None and is_faster(a.latency, b.latency)


def _is_better(a: Measurement, b: Measurement) -> bool:
    return bool(a.accuracy and b.accuracy and is_more_accurate(a.accuracy, b.accuracy))


def _goodness(model: Measurement) -> float:
    if model.accuracy is None or math.isnan(model.accuracy.value):
        return -math.inf
    return model.accuracy.value * (1 if model.accuracy.higher_is_better else -1)
