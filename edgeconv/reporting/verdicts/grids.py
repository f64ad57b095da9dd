"""Tables of the stages, classes and slices of a check, as harmless text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.units import Interval, drop_value, interval_value, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Check, ClassDrop, StageState

_FILES = {None: "not locked", False: "as locked", True: "changed"}


@dataclass(frozen=True)
class VerdictTable:
    """A table: the first `texts` columns are text, the others numbers; `left_out` rows are cut."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int
    left_out: int = 0


def stage_grid(check: Check) -> VerdictTable | None:
    """One row a stage, from the checkpoint to the quantized files; None without stages."""
    if not check.stages:
        return None
    metric = units.plain(_metric(check)) or "value"
    headings = (
        *("stage", "model", "file", "moved", f"{metric} locked", "now", "drop since the lock"),
        "drop from the stage before",
    )
    rows = tuple(map(_stage_row, check.stages))
    return _without_empty(VerdictTable("Stages", headings, rows, texts=4))


def class_grid(check: Check, most: int) -> VerdictTable | None:
    """At most `most` classes and slices that dropped, the worst first; None without any."""
    if not check.classes:
        return None
    headings = ("name", "kind", "model", "from", "samples", "before", "after", "drop")
    shown = check.classes[:most]
    left_out = len(check.classes) - len(shown)
    rows = tuple(_class_row(drop, _metric(check)) for drop in shown)
    return VerdictTable("Classes that dropped", headings, rows, 4, left_out)


def _metric(check: Check) -> str:
    return next((stage.metric for stage in check.stages if stage.metric), "")


def _stage_row(stage: StageState) -> tuple[str, ...]:
    return (
        stage.stage,
        units.plain(stage.model),
        _FILES[stage.changed],
        _moved(stage),
        value_of(stage.metric, stage.before),
        value_of(stage.metric, stage.after),
        _drop(stage.metric, stage.drop, stage.interval),
        _drop(stage.metric, stage.own_drop, stage.own_interval),
    )


def _moved(stage: StageState) -> str:
    if stage.moved is None:
        return units.ABSENT
    drop = stage.own_drop if stage.drop is None else stage.drop
    if not stage.moved or not drop:
        return "no"
    return "worse" if drop > 0 else "better"


def _drop(metric: str, drop: float | None, interval: Interval | None) -> str:
    return units.with_interval(drop_value(drop, metric), interval_value(interval, metric))


def _class_row(drop: ClassDrop, metric: str) -> tuple[str, ...]:
    return (
        units.plain(drop.name),
        drop.kind,
        units.plain(drop.model),
        drop.reference or units.ABSENT,
        str(drop.samples),
        value_of(metric, drop.before),
        value_of(metric, drop.after),
        _drop(metric, drop.drop, drop.interval),
    )


def _without_empty(grid: VerdictTable) -> VerdictTable:
    keep = [
        i
        for i in range(len(grid.headings))
        if i < grid.texts - 1 or any(row[i] != units.ABSENT for row in grid.rows)
    ]

    def kept(cells: Sequence[str]) -> tuple[str, ...]:
        return tuple(cells[i] for i in keep)

    texts = sum(i < grid.texts for i in keep)
    return VerdictTable(grid.title, kept(grid.headings), tuple(map(kept, grid.rows)), texts)
