"""The stages of a model, and its classes and slices, as tables of harmless text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.values import drop_of, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Check, ClassDrop, StageState

Interval = tuple[float, float]
_FILES = {None: "not locked", False: "as locked", True: "changed"}


@dataclass(frozen=True)
class Grid:
    """A table: its first `texts` columns are text, the others numbers; `left_out` rows more."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int
    left_out: int = 0


def stage_grid(check: Check) -> Grid | None:
    """One row a stage, from the checkpoint to the quantised files; None where there is none."""
    if not check.stages:
        return None
    metric = units.plain(_metric(check)) or "value"
    headings = (
        *("stage", "model", "file", "moved", f"{metric} locked", "now", "drop since the lock"),
        "drop from the stage before",
    )
    judged = _judged(check)
    rows = tuple(_stage_row(stage, judged) for stage in check.stages)
    return _without_empty(Grid("Stages", headings, rows, texts=4))


def class_grid(check: Check, most: int) -> Grid | None:
    """The classes and slices that dropped, worst first, at most `most` of them; None for none."""
    if not check.classes:
        return None
    headings = ("name", "kind", "model", "from", "samples", "before", "after", "drop")
    shown = check.classes[:most]
    left_out = len(check.classes) - len(shown)
    judged = {
        (one.model, one.reference, one.subject) for one in check.verdict.findings if one.interval
    }
    rows = tuple(
        _class_row(drop, _metric(check), (drop.model, drop.reference, drop.name) in judged)
        for drop in shown
    )
    return Grid("Classes that dropped", headings, rows, 4, left_out)


def _metric(check: Check) -> str:
    """The metric of the check; "" where nothing says it."""
    return next((stage.metric for stage in check.stages if stage.metric), "")


def _judged(check: Check) -> set[tuple[str, str]]:
    """The models and what they are held against, where a finding has the bounds of the drop.

    The gate's bounds are at levels that its limits share, so that those of a stage are others:
    one pair has one interval.
    """
    findings = check.verdict.findings
    drops = (one for one in findings if one.limit == "max-accuracy-drop" and one.interval)
    found = {(one.model, one.reference) for one in drops}
    has_float32 = any(stage.stage == "float32" for stage in check.stages)
    made_of_another = {s.model for s in check.stages if s.stage == "quantised" and has_float32}
    return {pair for pair in found if pair[1] == "lock" or pair[0] not in made_of_another}


def _stage_row(stage: StageState, judged: set[tuple[str, str]]) -> tuple[str, ...]:
    of_lock = None if (stage.model, "lock") in judged else stage.interval
    of_before = None if (stage.model, "baseline") in judged else stage.own_interval
    return (
        stage.stage,
        units.plain(stage.model),
        _FILES[stage.changed],
        _moved(stage),
        value_of(stage.metric, stage.before),
        value_of(stage.metric, stage.after),
        _drop(stage.metric, stage.drop, of_lock),
        _drop(stage.metric, stage.own_drop, of_before),
    )


def _moved(stage: StageState) -> str:
    if stage.moved is None:
        return units.ABSENT
    drop = stage.own_drop if stage.drop is None else stage.drop
    if not stage.moved or not drop:
        return "no"
    return "worse" if drop > 0 else "better"


def _drop(metric: str, drop: float | None, interval: Interval | None) -> str:
    value = drop_of(metric, drop)
    return f"{value} {_ends(metric, interval)}" if interval else value


def _ends(metric: str, interval: Interval) -> str:
    ends = (drop_of(metric, end).removesuffix(" pp") for end in interval)
    return f"[{', '.join(ends)}]"


def _class_row(drop: ClassDrop, metric: str, is_judged: bool) -> tuple[str, ...]:
    """`is_judged`: a finding has the bounds of this drop, and one pair has one interval."""
    return (
        units.plain(drop.name),
        drop.kind,
        units.plain(drop.model),
        drop.reference or units.ABSENT,
        str(drop.samples),
        value_of(metric, drop.before),
        value_of(metric, drop.after),
        _drop(metric, drop.drop, None if is_judged else drop.interval),
    )


def _without_empty(grid: Grid) -> Grid:
    """The grid without the columns of numbers in which nothing is known."""
    keep = [
        i
        for i in range(len(grid.headings))
        if i < grid.texts - 1 or any(row[i] != units.ABSENT for row in grid.rows)
    ]

    def kept(cells: Sequence[str]) -> tuple[str, ...]:
        return tuple(cells[i] for i in keep)

    texts = sum(i < grid.texts for i in keep)
    return Grid(grid.title, kept(grid.headings), tuple(map(kept, grid.rows)), texts)
