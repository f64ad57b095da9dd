"""Tables of the HTML page, whose cells know how they sort; and the table of all models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.rows import accuracy_heading, all_models, kernel_flips, model_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.reporting.rows import ModelRow
    from edgeconv.types import Latency, Measurement, Report

    _Pair = tuple[Measurement, ModelRow]

Key = float | str | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: its text, a smaller line under it, and its sort key, None for the text.

    `lead` is a warning before the text. `share`, 0 to 1, is drawn as a bar under it. `kind` is a
    class of the style sheet.
    """

    text: str
    under: str = ""
    lead: str = ""
    key: Key = None
    kind: str = ""
    share: float | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it is not sorted by its text."""
        return self.key is not None or self.text == units.ABSENT or self.kind == "remark"

    @property
    def sort_key(self) -> str:
        """What the page's script compares; "" for a missing number."""
        if isinstance(self.key, float | int):
            return f"{self.key:.9g}" if math.isfinite(self.key) else ""
        return self.key if self.key is not None else ""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a column; text is aligned left, numbers right."""

    text: str
    is_text: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row. The first cell is its heading; the last one spans `spans` columns."""

    cells: tuple[Cell, ...]
    kind: str = ""
    number: int | None = None
    spans: int = 1


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """A whole table with its caption."""

    name: str
    caption: str
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    kind: str = ""
    is_sortable: bool = True


def number(text: str, key: float | None, *, under: str = "") -> Cell:
    """A cell that is sorted by a number; None goes last."""
    return Cell(text=text, under=under, key=math.nan if key is None else float(key))


def headings(*names: str, text: frozenset[int] | set[int] = frozenset({0})) -> tuple[Heading, ...]:
    """Columns by name; `text` are the indices of those that hold text."""
    return tuple(Heading(text=name, is_text=i in text) for i, name in enumerate(names))


_Column = tuple[Heading, list[Cell]]


def models_table(report: Report) -> PageTable:
    """One line a model, the baseline first, with the columns that any of them has."""
    rows = model_rows(report)
    pairs = list(zip(all_models(report), rows, strict=True))
    known = _known(report, pairs)
    columns = [*known, *_measured(report, pairs)]
    fixed = len(known)
    if len(columns) == fixed:
        columns.append((Heading(text="Measured", is_text=True), [Cell(text="nothing")] * len(rows)))
    names = [Cell(text=row.name, under=row.runtime, key=row.name) for row in rows]
    lines = tuple(
        _line(i, row, [names[i], *(cells[i] for _, cells in columns)], fixed)
        for i, row in enumerate(rows)
    )
    return PageTable(
        name="models",
        caption=_caption(rows),
        headings=(Heading(text="Model", is_text=True), *(heading for heading, _ in columns)),
        lines=lines,
        kind="models",
    )


def _line(index: int, row: ModelRow, cells: list[Cell], fixed: int) -> Line:
    """A model that did not run has a name, the `fixed` cells, and the error."""
    kind = "is-baseline" if row.is_baseline else ""
    if not row.error:
        return Line(cells=tuple(cells), kind=kind, number=index)
    error = Cell(text=row.error, kind="remark", lead="Did not run.")
    own = cells[: fixed + 1]
    return Line(cells=(*own, error), kind=kind, number=index, spans=len(cells) - len(own))


def _known(report: Report, pairs: list[_Pair]) -> list[_Column]:
    sizes = [number(r.size, m.size_bytes, under=_under("gzip ", r.gzip)) for m, r in pairs]
    ratios = [number(r.size_ratio, m.size_ratio) for m, r in pairs]
    marks = [Cell(text=row.mark, key=row.mark, kind=f"mark {row.mark}") for _, row in pairs]
    budget = [(Heading(text="Budget", is_text=True), marks)] if report.verdict else []
    return [*budget, (Heading(text="Size"), sizes), (Heading(text="Ratio"), ratios)]


def _measured(report: Report, pairs: list[_Pair]) -> Iterator[_Column]:
    for heading, cells in (
        *_times(pairs),
        (
            "Memory",
            [
                number(r.memory, m.peak_memory_bytes, under=_under("arena ", r.arena))
                for m, r in pairs
            ],
        ),
        *_accuracies(report, pairs),
        ("GPU", [Cell(text=r.gpu, key=r.gpu) for _, r in pairs]),
        ("CPU flips", [number(r.kernel_flips, kernel_flips(m)) for m, r in pairs]),
        ("Training", [Cell(text=r.training) for _, r in pairs]),
        ("Runs from", [Cell(text=r.oldest_runtime) for _, r in pairs]),
    ):
        if any(cell.text != units.ABSENT or cell.under for cell in cells):
            yield Heading(text=heading), cells


def _times(pairs: list[_Pair]) -> Iterator[tuple[str, list[Cell]]]:
    p50, p90, paced, cold, speed_up = [], [], [], [], []
    for model, row in pairs:
        latency, ratio = model.latency, units.speed_up(model.latency_ratio)
        p50.append(_median(row.p50, latency, row.p50_interval))
        p90.append(
            number(row.p90, latency.p90_us if latency else None, under=_under("p99 ", row.p99))
        )
        paced.append(_median(row.paced, model.paced, row.paced_interval))
        cold.append(_median(row.cold, model.cold, row.cold_interval))
        speed_up.append(number(row.speed_up, ratio, under=_under("", row.speed_up_interval)))
    yield from (("p50", p50), ("p90", p90), ("Paced p50", paced), ("Cold p50", cold))
    yield "Speed-up", speed_up


def _median(text: str, latency: Latency | None, interval: str) -> Cell:
    return number(text, latency.p50_us if latency else None, under=_under("", interval))


def _accuracies(report: Report, pairs: list[_Pair]) -> Iterator[tuple[str, list[Cell]]]:
    heading = accuracy_heading(report)
    accuracies = [number(r.accuracy, m.accuracy.value if m.accuracy else None) for m, r in pairs]
    yield heading[:1].upper() + heading[1:], accuracies
    for name in dict.fromkeys(name for _, row in pairs for name in row.metrics):
        yield name, [_metric(model, row, name) for model, row in pairs]
    drops = [number(r.drop, m.accuracy_drop, under=_under("", r.drop_interval)) for m, r in pairs]
    yield "Drop", drops
    yield "Flips", [number(r.flips, _sum(m.fixed, m.broken)) for m, r in pairs]


def _metric(model: Measurement, row: ModelRow, name: str) -> Cell:
    values = dict(zip(row.metrics, (each.value for each in model.metrics), strict=True))
    return number(row.metrics.get(name, units.ABSENT), values.get(name))


def _sum(fixed: int | None, broken: int | None) -> int | None:
    return None if fixed is None or broken is None else fixed + broken


def _under(label: str, text: str) -> str:
    return "" if text == units.ABSENT else f"{label}{text}"


def _caption(rows: tuple[ModelRow, ...]) -> str:
    sentences = (
        sentence
        for field, sentence in _EXPLAINED.items()
        if any(getattr(row, field) != units.ABSENT for row in rows)
    )
    return " ".join(sentences) or "Every model that was measured."


_EXPLAINED = {
    "p50_interval": "In brackets: 95 % intervals, of the median and, by sample, of the drop.",
    "paced": "Paced: invokes in a fixed period, with sleep in between.",
    "cold": "Cold: load and first invoke of a fresh process.",
    "speed_up_interval": "≈1× is as fast as float32, within noise: its interval contains 1.",
    "arena": "The arena holds the tensors; memory is all that the process grew by.",
    "flips": "Flips: samples that became right (+) or wrong (−), against the baseline.",
    "kernel_flips": "CPU flips: samples with another answer than from the same file on the CPU.",
    "gzip": "Gzip is about the size in a package.",
    "training": "Training is the time of quantization-aware training.",
    "oldest_runtime": "Runs from: the oldest TensorFlow Lite that has every operator.",
}
