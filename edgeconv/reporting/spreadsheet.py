"""Reports as CSV: one line a model, plain numbers, units in the headings."""

import csv
import io
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from edgeconv.reporting import units
from edgeconv.reporting.columns import COLUMNS, all_models
from edgeconv.reporting.limits import mark_of
from edgeconv.reporting.units import metric_heading
from edgeconv.types import Measurement, NpuEstimate, Report
from edgeconv.types.errors import UsageError

_Value = str | int | float | None
# What starts a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render_csv(report: Report, *others: Report) -> str:
    """One line for each model of every report; numbers that are missing or not finite are empty."""
    pairs = [(each, model) for each in (report, *others) for model in all_models(each)]
    metrics = list(dict.fromkeys(name for _, model in pairs for name in _further(model)))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    npus = list(dict.fromkeys(estimate.npu for _, m in pairs for estimate in m.npu))
    estimated = [f"{npu}: {name}" for npu in npus for name in _NPU]
    writer.writerow([*_TEXTS, *_NUMBERS, *map(safe, metrics), *map(safe, estimated), "error"])
    for each, model in pairs:
        values = _further(model)
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


def _further(model: Measurement) -> dict[str, float]:
    """The further metrics by their headings, and their drops."""
    values = {metric_heading(each): each.value for each in model.metrics}
    drops = {f"{metric_heading(e)} drop": e.drop for e in model.metrics if e.drop is not None}
    return values | drops


def to_pandas(report: Report) -> Any:
    """The lines of `render_csv` as a DataFrame. Raises `UsageError` without pandas."""
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise UsageError("to_pandas needs pandas", hint="pip install pandas") from error
    texts = dict.fromkeys([*_TEXTS, "error"], str)
    lines = io.StringIO(render_csv(report))
    frame = pandas.read_csv(lines, dtype=texts, keep_default_na=False, na_values=[""])
    return frame.fillna(dict.fromkeys(texts, ""))


def safe(text: str) -> str:
    """Text that no spreadsheet runs: an apostrophe precedes what would be a formula."""
    harmless = units.plain(text)
    return f"'{harmless}" if harmless.lstrip().startswith(_FORMULA) else harmless


def _cell(value: _Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


_TEXTS: dict[str, Callable[[Report, Measurement], str]] = {
    "report": lambda report, _: report.title,
    "machine": lambda report, _: report.environment.machine,
    "model": lambda _, model: model.name,
    "role": lambda _, model: model.role,
    "recipe": lambda _, model: model.recipe or "",
    "runtime": lambda _, model: model.runtime,
    "oldest runtime": lambda _, model: model.oldest_runtime,
    "grade": lambda _, model: model.grade,
    "sha256": lambda _, model: model.sha256,
    "budget": lambda report, model: mark_of(model.name, report.verdict).replace(units.ABSENT, ""),
    "metric": lambda _, model: model.accuracy.title if model.accuracy else "",
}
_NUMBERS = {heading: of for column in COLUMNS for heading, of in column.csv_numbers.items()}
# What is estimated for each NPU.
_NPU: dict[str, Callable[[NpuEstimate], _Value]] = {
    "share of operators": lambda estimate: estimate.operator_share,
    "share of multiplications": lambda estimate: estimate.work_share,
    "SRAM (bytes)": lambda estimate: estimate.sram_bytes,
    "DRAM (bytes)": lambda estimate: estimate.dram_bytes,
    "flash (bytes)": lambda estimate: estimate.flash_bytes,
    "estimated latency (us)": lambda estimate: estimate.latency_us,
}
