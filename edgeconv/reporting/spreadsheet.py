"""Reports as CSV: one line a model, plain numbers, units in the headings."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.limits import mark_of
from edgeconv.reporting.rows import all_models, kernel_flips
from edgeconv.reporting.units import metric_heading

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types import Latency, Measurement, NpuEstimate, Report

_Value = str | int | float | None
# What starts a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report, *others: Report) -> str:
    """One line for each model of every report; numbers that are missing or not finite are empty."""
    pairs = [(each, model) for each in (report, *others) for model in all_models(each)]
    metrics = list(dict.fromkeys(metric_heading(a) for _, m in pairs for a in m.metrics))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    npus = list(dict.fromkeys(estimate.npu for _, m in pairs for estimate in m.npu))
    estimated = [f"{npu}: {name}" for npu in npus for name in _NPU]
    writer.writerow([*_TEXTS, *_NUMBERS, *map(safe, metrics), *map(safe, estimated), "error"])
    for each, model in pairs:
        values = {metric_heading(a): a.value for a in model.metrics}
        own = {estimate.npu: estimate for estimate in model.npu}
        writer.writerow(
            [
                *(safe(text(each, model)) for text in _TEXTS.values()),
                *(_cell(number(model)) for number in _NUMBERS.values()),
                *(_cell(values.get(name)) for name in metrics),
                *(_cell(of(own[n]) if n in own else None) for n in npus for of in _NPU.values()),
                safe(model.error),
            ]
        )
    return file.getvalue()


def safe(text: str) -> str:
    """Text that no spreadsheet runs: an apostrophe precedes what would be a formula."""
    harmless = units.plain(text)
    return f"'{harmless}" if harmless.lstrip().startswith(_FORMULA) else harmless


def _cell(value: _Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _timed(of: Callable[[Latency], float]) -> Callable[[Measurement], _Value]:
    return lambda model: of(model.latency) if model.latency else None


def _end(index: int) -> Callable[[Measurement], _Value]:
    return lambda m: m.accuracy_drop_interval[index] if m.accuracy_drop_interval else None


def _ratio_end(index: int) -> Callable[[Measurement], _Value]:
    return lambda m: m.latency_ratio_interval[index] if m.latency_ratio_interval else None


def _percentiles(
    name: str, of: Callable[[Measurement], Latency | None]
) -> dict[str, Callable[[Measurement], _Value]]:
    """The columns of the further latencies of a model."""

    def column(number: Callable[[Latency], float]) -> Callable[[Measurement], _Value]:
        return lambda model: number(latency) if (latency := of(model)) else None

    return {
        f"{name} p50 (us)": column(lambda latency: latency.p50_us),
        f"{name} p50 interval low (us)": column(lambda latency: latency.p50_interval_us[0]),
        f"{name} p50 interval high (us)": column(lambda latency: latency.p50_interval_us[1]),
        f"{name} p90 (us)": column(lambda latency: latency.p90_us),
        f"{name} p99 (us)": column(lambda latency: latency.p99_us),
    }


_TEXTS: dict[str, Callable[[Report, Measurement], str]] = {
    "report": lambda report, _: report.title,
    "machine": lambda report, _: report.environment.machine,
    "model": lambda _, model: model.name,
    "role": lambda _, model: model.role,
    "recipe": lambda _, model: model.recipe or "",
    "runtime": lambda _, model: model.runtime,
    "oldest runtime": lambda _, model: model.oldest_runtime,
    "sha256": lambda _, model: model.sha256,
    "budget": lambda report, model: mark_of(model.name, report.verdict).replace(units.ABSENT, ""),
    "metric": lambda _, model: model.accuracy.metric if model.accuracy else "",
}
_NUMBERS: dict[str, Callable[[Measurement], _Value]] = {
    "size (bytes)": lambda model: model.size_bytes,
    "gzip size (bytes)": lambda model: model.gzip_size_bytes,
    "size ratio": lambda model: model.size_ratio,
    "latency p50 (us)": _timed(lambda latency: latency.p50_us),
    "p50 interval low (us)": _timed(lambda latency: latency.p50_interval_us[0]),
    "p50 interval high (us)": _timed(lambda latency: latency.p50_interval_us[1]),
    "latency p90 (us)": _timed(lambda latency: latency.p90_us),
    "latency p99 (us)": _timed(lambda latency: latency.p99_us),
    **_percentiles("paced", lambda model: model.paced),
    **_percentiles("cold", lambda model: model.cold),
    "threads": _timed(lambda latency: latency.threads),
    "batch": _timed(lambda latency: latency.batch),
    "latency ratio": lambda model: model.latency_ratio,
    "latency ratio low": _ratio_end(0),
    "latency ratio high": _ratio_end(1),
    "peak memory (bytes)": lambda model: model.peak_memory_bytes,
    "arena (bytes)": lambda model: model.arena_bytes,
    "value of the metric": lambda model: model.accuracy.value if model.accuracy else None,
    "samples": lambda model: model.accuracy.samples if model.accuracy else None,
    "drop": lambda model: model.accuracy_drop,
    "drop interval low": _end(0),
    "drop interval high": _end(1),
    "samples fixed": lambda model: model.fixed,
    "samples broken": lambda model: model.broken,
    "other answers than on the CPU": kernel_flips,
}
# What is estimated for each NPU.
_NPU: dict[str, Callable[[NpuEstimate], _Value]] = {
    "share of operators": lambda estimate: estimate.operator_share,
    "share of multiplications": lambda estimate: estimate.work_share,
    "SRAM (bytes)": lambda estimate: estimate.sram_bytes,
    "DRAM (bytes)": lambda estimate: estimate.dram_bytes,
    "flash (bytes)": lambda estimate: estimate.flash_bytes,
    "estimated latency (us)": lambda estimate: estimate.latency_us,
}
