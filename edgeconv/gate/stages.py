"""Which stage moved: the checkpoint, the trained model, float32 or a quantized file.

Each is compared with its locked state and with the stage before it, on the same samples.
"""

from collections.abc import Iterator
from typing import NamedTuple

from edgeconv.gate.drops import (
    PairedAccuracies,
    UnpairedAccuracies,
    drop_estimate,
    pair_accuracies,
    pairs_of,
)
from edgeconv.statistics.comparison import drop_of
from edgeconv.types import GateStatistics, LockedModel, Measurement, Report, StageName, StageState

_FLOAT32 = "float32"


class _MeasuredStage(NamedTuple):
    """A measured model, its stage, and the model it was converted from, where it is measured."""

    stage: StageName
    row: Measurement
    source: Measurement | None


def stage_states(
    report: Report, locked: LockedModel | None, statistics: GateStatistics
) -> tuple[StageState, ...]:
    """Every measured model compared with its locked state and the stage before it, in order.

    If the samples differ from the lock's, there are both values but no drop; if the metric differs,
    there is neither. If nothing moved, any of the stages has `moved` with a probability of at most
    1 - confidence (Bonferroni, over both sides and all stages).
    """
    steps = list(_steps(report))
    pairs = [
        next(
            (pair for pair in pairs_of(step.row, report, locked) if pair.reference == "lock"), None
        )
        for step in steps
    ]
    tests = 2 * sum(isinstance(pair, PairedAccuracies) for pair in pairs)
    level = (1 - statistics.confidence) / max(1, tests)
    return tuple(
        _state(step, locked, pair, level, statistics)
        for step, pair in zip(steps, pairs, strict=True)
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
            alike = [each for each in floats if each.runtime == row.runtime]
            source = next(iter(alike or floats), trained)
            yield _MeasuredStage("quantized", row, source)


def _with_source(step: _MeasuredStage) -> PairedAccuracies | None:
    other = step.source
    if other is None:
        return None
    is_same = other.sha256 == step.row.sha256
    pair = pair_accuracies("baseline", other.accuracy, step.row.accuracy, is_same=is_same)
    return pair if isinstance(pair, PairedAccuracies) else None


def _state(
    step: _MeasuredStage,
    locked: LockedModel | None,
    locked_pair: PairedAccuracies | UnpairedAccuracies | None,
    level: float,
    statistics: GateStatistics,
) -> StageState:
    """`level`: how often `moved` may be wrong, in each direction."""
    row = step.row
    pair = locked_pair if isinstance(locked_pair, PairedAccuracies) else None
    drop, interval = _drop(pair)
    after = (locked_pair and locked_pair.after) or row.accuracy
    before = locked_pair and locked_pair.before
    was = locked.stage_of(row) if locked else None
    own, own_interval = _drop(_with_source(step))
    return StageState(
        stage=step.stage,
        model=row.name,
        changed=None if was is None else was.sha256 != row.sha256,
        metric=after.metric if after else "",
        before=before.value if before else None,
        after=after.value if after else None,
        drop=drop,
        interval=interval,
        own_drop=own,
        own_interval=own_interval,
        moved=_has_moved(pair, level, statistics) if pair else None,
        sha256=row.sha256,
    )


def _drop(pair: PairedAccuracies | None) -> tuple[float | None, tuple[float, float] | None]:
    if pair is None:
        return None, None
    return (0.0, (0.0, 0.0)) if pair.is_same else drop_of(pair.before, pair.after)


def _has_moved(pair: PairedAccuracies, level: float, statistics: GateStatistics) -> bool:
    if pair.is_same:
        return False
    estimate = drop_estimate(pair.before, pair.after, statistics)
    return estimate.value != 0 and (estimate.is_above(0.0, level) or estimate.is_below(0.0, level))
