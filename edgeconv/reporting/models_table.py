"""The table of all the models of a report, for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.rows import accuracy_heading, model_rows
from edgeconv.reporting.tables import Cell, Heading, Line, PageTable, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.reporting.rows import ModelRow
    from edgeconv.types import Measurement, Report

# A column is a heading, and what a model has in it. Those that no model has are left out.
_Column = tuple[Heading, list[Cell]]


def models_table(report: Report) -> PageTable:
    """One line a model, the baseline first, and the columns that any of them has."""
    models = all_models(report)
    rows = model_rows(report)
    columns = [*_known(report, models, rows), *_measured(report, models, rows)]
    fixed = len(_known(report, models, rows))
    if len(columns) == fixed:
        columns.append((Heading(text="Measured", is_text=True), [Cell(text="nothing")] * len(rows)))
    names = [Cell(text=row.name, under=row.runtime, key=row.name) for row in rows]
    lines = tuple(
        _line(i, row, names[i], [cells[i] for _, cells in columns], fixed)
        for i, row in enumerate(rows)
    )
    return PageTable(
        name="models",
        caption=_caption(rows),
        headings=(Heading(text="Model", is_text=True), *(heading for heading, _ in columns)),
        lines=lines,
        kind="models",
    )


def all_models(report: Report) -> list[Measurement]:
    """The baseline, if there is one, and then what was measured beside it."""
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def _line(index: int, row: ModelRow, name: Cell, cells: list[Cell], fixed: int) -> Line:
    """`fixed` cells are known of a model that did not run, and the rest is why it did not."""
    kind = "is-baseline" if row.is_baseline else ""
    if not row.error:
        return Line(cells=(name, *cells), kind=kind, number=index)
    why = Cell(text=row.error, kind="remark", lead="Did not run.")
    spans = len(cells) - fixed
    return Line(cells=(name, *cells[:fixed], why), kind=kind, number=index, spans=spans)


def _known(report: Report, models: list[Measurement], rows: tuple[ModelRow, ...]) -> list[_Column]:
    """What is known of every model: whether it holds the budget, its size, and the ratio."""
    pairs = list(zip(models, rows, strict=True))
    sizes = [number(r.size, m.size_bytes, under=_under("gzip ", r.gzip)) for m, r in pairs]
    ratios = [number(r.size_ratio, m.size_ratio) for m, r in pairs]
    marks = [Cell(text=row.mark, key=row.mark, kind=f"mark {row.mark}") for row in rows]
    judged = [(Heading(text="Budget", is_text=True), marks)] if report.verdict else []
    return [*judged, (Heading(text="Size"), sizes), (Heading(text="Ratio"), ratios)]


def _measured(
    report: Report, models: list[Measurement], rows: tuple[ModelRow, ...]
) -> Iterator[_Column]:
    """What was measured of any model."""
    pairs = list(zip(models, rows, strict=True))
    for heading, cells in (
        *_times(pairs),
        ("Memory", [_memory(m, r) for m, r in pairs]),
        *_judged(report, pairs),
        ("Training", [Cell(text=r.training) for _, r in pairs]),
        ("Runs from", [Cell(text=r.oldest_runtime) for _, r in pairs]),
    ):
        if any(cell.text != units.ABSENT or cell.under for cell in cells):
            yield Heading(text=heading), cells


def _times(pairs: list[tuple[Measurement, ModelRow]]) -> Iterator[tuple[str, list[Cell]]]:
    """Latency, and how it is beside float32."""
    latencies = [model.latency for model, _ in pairs]
    p50 = [each.p50_us if each else None for each in latencies]
    p90 = [each.p90_us if each else None for each in latencies]
    rows = [row for _, row in pairs]
    yield (
        "p50",
        [
            number(row.p50, key, under=_under("", row.p50_interval))
            for row, key in zip(rows, p50, strict=True)
        ],
    )
    yield (
        "p90",
        [
            number(row.p90, key, under=_under("p99 ", row.p99))
            for row, key in zip(rows, p90, strict=True)
        ],
    )
    yield (
        "Speed-up",
        [
            number(
                row.speed_up,
                units.speed_up(model.latency_ratio),
                under=_under("", row.speed_up_interval),
            )
            for model, row in pairs
        ],
    )


def _judged(
    report: Report, pairs: list[tuple[Measurement, ModelRow]]
) -> Iterator[tuple[str, list[Cell]]]:
    """The metrics, and what was lost."""
    heading = accuracy_heading(report)
    accuracies = [number(r.accuracy, m.accuracy.value if m.accuracy else None) for m, r in pairs]
    yield heading[:1].upper() + heading[1:], accuracies
    for name in dict.fromkeys(name for _, row in pairs for name in row.metrics):
        found = [_metric(model, row, name) for model, row in pairs]
        yield name, found
    drops = [number(r.drop, m.accuracy_drop, under=_under("", r.drop_interval)) for m, r in pairs]
    yield "Drop", drops
    yield "Flips", [number(r.flips, _changed(m)) for m, r in pairs]


def _metric(model: Measurement, row: ModelRow, name: str) -> Cell:
    values = dict(zip(row.metrics, (each.value for each in model.metrics), strict=True))
    return number(row.metrics.get(name, units.ABSENT), values.get(name))


def _memory(model: Measurement, row: ModelRow) -> Cell:
    return number(row.memory, model.peak_memory_bytes, under=_under("arena ", row.arena))


def _changed(model: Measurement) -> int | None:
    if model.fixed is None or model.broken is None:
        return None
    return model.fixed + model.broken


def _under(label: str, text: str) -> str:
    return "" if text == units.ABSENT else f"{label}{text}"


def _caption(rows: tuple[ModelRow, ...]) -> str:
    said = []
    for field, sentence in _EXPLAINED.items():
        if any(getattr(row, field) != units.ABSENT for row in rows):
            said.append(sentence)
    return " ".join(said) or "Every model that was measured."


_EXPLAINED = {
    "p50_interval": "In brackets: 95 % intervals, of the median and, by sample, of the drop.",
    "speed_up_interval": "≈1× is as fast as float32, within noise: 1 is in the interval by rounds.",
    "arena": "The arena is what the tensors need, memory all that the process grew by.",
    "flips": "Flips: samples that became right (+) and wrong (−) beside the baseline.",
    "gzip": "Gzip is about the size in a package.",
    "training": "Training is the time that it took.",
    "oldest_runtime": "Runs from: the oldest TensorFlow Lite that has every operator.",
}
