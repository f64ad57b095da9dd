"""Which stage moved: the checkpoint, the trained model, float32 and what was quantised of it.

Each is held against what is locked of it and against the stage before it, on the same samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.gate.drops import drop_estimate
from edgeconv.gate.pairs import PairedAccuracies, UnpairedAccuracies, paired, pairs_of
from edgeconv.statistics.paired import drop_of
from edgeconv.types import StageState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.types import (
        GateStatistics,
        LockedModel,
        Measurement,
        Report,
        StageName,
    )

_FLOAT32 = "float32"


class _MeasuredStage(NamedTuple):
    """A measured model at its stage, and the one that it was made from, if that is measured."""

    stage: StageName
    row: Measurement
    made_from: Measurement | None


def stage_states(
    report: Report, locked: LockedModel | None, statistics: GateStatistics
) -> tuple[StageState, ...]:
    """Every measured model beside what is locked of it and the stage before it, in their order.

    Of an accuracy beside the lock only both values are said where that is of other samples, and
    nothing where it is of another metric. `moved` is wrong for any of the stages at most with
    probability 1 - confidence, where nothing moved (Bonferroni, over both sides and all stages).
    """
    steps = list(_steps(report))
    beside = [_beside_lock(step.row, report, locked) for step in steps]
    level = (1 - statistics.confidence) / max(
        1, 2 * sum(isinstance(p, PairedAccuracies) for p in beside)
    )
    return tuple(
        _state(step, locked, pair, level, statistics)
        for step, pair in zip(steps, beside, strict=True)
    )


def _steps(report: Report) -> Iterator[_MeasuredStage]:
    checkpoint, trained = report.checkpoint, report.baseline
    if checkpoint:
        yield _MeasuredStage("checkpoint", checkpoint, None)
    if trained:
        yield _MeasuredStage("trained", trained, checkpoint)
    artifacts = [row for row in report.measurements if row.role == "artifact"]
    floats = [row for row in artifacts if row.recipe == _FLOAT32]
    for row in floats:
        yield _MeasuredStage("float32", row, trained)
    for row in artifacts:
        if row.recipe != _FLOAT32:
            alike = [one for one in floats if one.runtime == row.runtime]
            made_from = next(iter(alike or floats), trained)
            yield _MeasuredStage("quantized", row, made_from)


def _beside_lock(
    row: Measurement, report: Report, locked: LockedModel | None
) -> PairedAccuracies | UnpairedAccuracies | None:
    found = (one for one in pairs_of(row, report, locked) if one.reference == "lock")
    return next(found, None)


def _beside_stage(step: _MeasuredStage) -> PairedAccuracies | None:
    other = step.made_from
    if other is None:
        return None
    is_same = other.sha256 == step.row.sha256
    pair = paired("baseline", other.accuracy, step.row.accuracy, is_same=is_same)
    return pair if isinstance(pair, PairedAccuracies) else None


def _state(
    step: _MeasuredStage,
    locked: LockedModel | None,
    beside: PairedAccuracies | UnpairedAccuracies | None,
    level: float,
    statistics: GateStatistics,
) -> StageState:
    """`level`: how often it may be said wrongly that the stage moved, either way."""
    row = step.row
    pair = beside if isinstance(beside, PairedAccuracies) else None
    drop, interval = _drop(pair)
    after = (beside and beside.after) or row.accuracy
    was = locked.stage_of(row) if locked else None
    own, own_interval = _drop(_beside_stage(step))
    return StageState(
        stage=step.stage,
        model=row.name,
        changed=None if was is None else was.sha256 != row.sha256,
        metric=after.metric if after else "",
        before=beside.before.value if beside and beside.before else None,
        after=after.value if after else None,
        drop=drop,
        interval=interval,
        own_drop=own,
        own_interval=own_interval,
        moved=_has_moved(pair, level, statistics) if pair else None,
        sha256=row.sha256,
    )


def _drop(pair: PairedAccuracies | None) -> tuple[float | None, tuple[float, float] | None]:
    """How much worse it is, and the interval of that, as every report has it."""
    if pair is None:
        return None, None
    return (0.0, (0.0, 0.0)) if pair.is_same else drop_of(pair.before, pair.after)


def _has_moved(pair: PairedAccuracies, level: float, statistics: GateStatistics) -> bool:
    """Whether it is surely another value than before."""
    if pair.is_same:
        return False
    estimate = drop_estimate(pair.before, pair.after, statistics)
    return estimate.value != 0 and (estimate.is_above(0.0, level) or estimate.is_below(0.0, level))
