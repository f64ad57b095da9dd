"""Which stage moved: the checkpoint, the trained model, float32 and what was quantised of it.

Each is held against what is locked of it and against the stage before it, on the same samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.gate.drops import drop_evidence
from edgeconv.gate.pairs import Pair, Unpaired, paired, pairs_of
from edgeconv.reporting import units
from edgeconv.types import StageState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.types import (
        Judging,
        LockedModel,
        Measurement,
        Report,
        StageName,
    )

_FLOAT32 = "float32"


class _Step(NamedTuple):
    """A measured model at its stage, and the one that it was made from, if that is measured."""

    stage: StageName
    row: Measurement
    made_from: Measurement | None


def stage_states(
    report: Report, locked: LockedModel | None, judging: Judging
) -> tuple[StageState, ...]:
    """Every measured model beside what is locked of it and the stage before it, in their order.

    Of an accuracy beside the lock only both values are said where that is of other samples, and
    nothing where it is of another metric. `moved` is wrong for any of the stages at most with
    probability 1 - confidence, where nothing moved (Bonferroni, over both sides and all stages).
    """
    steps = list(_steps(report))
    beside = [_beside_lock(step.row, report, locked) for step in steps]
    level = 1 - judging.confidence
    sure = level / max(1, 2 * sum(isinstance(pair, Pair) for pair in beside))
    return tuple(
        _state(step, locked, pair, (level, sure), judging)
        for step, pair in zip(steps, beside, strict=True)
    )


def changes(
    locked: LockedModel, inputs: Mapping[str, str], tools: Mapping[str, str]
) -> tuple[str, ...]:
    """What is other than locked, a clause each: "the source model changed since the lock"."""
    said = [*_settings(locked, inputs)]
    said += [f"{_input(name)} {how} since the lock" for name, how in _changed(locked, inputs)]
    versions = [
        f"{name} {locked.tools.get(name, 'none')} → {tools.get(name, 'none')}"
        for name in sorted(locked.tools.keys() | tools.keys())
        if locked.tools.get(name) != tools.get(name)
    ]
    return (*said, *versions)


def _changed(locked: LockedModel, inputs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(locked.inputs.keys() | inputs.keys()):
        if _is_setting(name):
            continue
        be = "are" if name.split()[0].endswith("s") else "is"
        if name not in inputs:
            yield name, f"{be} gone"
        elif name not in locked.inputs:
            yield name, f"{be} new"
        elif inputs[name] != locked.inputs[name]:
            yield name, "changed"


def _settings(locked: LockedModel, inputs: Mapping[str, str]) -> Iterator[str]:
    for name in filter(_is_setting, sorted(locked.inputs.keys() | inputs.keys())):
        before, after = locked.inputs.get(name, "default"), inputs.get(name, "default")
        if before != after:
            yield f"{units.plain(name)} {units.plain(before)} → {units.plain(after)}"


def _is_setting(name: str) -> bool:
    return " --" in name


def _input(name: str) -> str:
    return "the source model" if name == "source" else f"the {units.plain(name)}"


def _steps(report: Report) -> Iterator[_Step]:
    checkpoint, trained = report.checkpoint, report.baseline
    if checkpoint:
        yield _Step("checkpoint", checkpoint, None)
    if trained:
        yield _Step("trained", trained, checkpoint)
    artifacts = [row for row in report.measurements if row.role == "artifact"]
    floats = [row for row in artifacts if row.recipe == _FLOAT32]
    for row in floats:
        yield _Step("float32", row, trained)
    for row in artifacts:
        if row.recipe != _FLOAT32:
            alike = [one for one in floats if one.runtime == row.runtime]
            made_from = next(iter(alike or floats), trained)
            yield _Step("quantised", row, made_from)


def _beside_lock(
    row: Measurement, report: Report, locked: LockedModel | None
) -> Pair | Unpaired | None:
    found = (one for one in pairs_of(row, report, locked) if one.reference == "lock")
    return next(found, None)


def _beside_stage(step: _Step) -> Pair | None:
    other = step.made_from
    if other is None:
        return None
    is_same = other.sha256 == step.row.sha256
    pair = paired("baseline", other.accuracy, step.row.accuracy, is_same=is_same)
    return pair if isinstance(pair, Pair) else None


def _state(
    step: _Step,
    locked: LockedModel | None,
    beside: Pair | Unpaired | None,
    levels: tuple[float, float],
    judging: Judging,
) -> StageState:
    """`levels`: of the bounds that are shown, and of the ones that say that it moved."""
    row = step.row
    pair = beside if isinstance(beside, Pair) else None
    drop, surely = (_drop(pair, judging, level) for level in levels)
    after = (beside and beside.after) or row.accuracy
    was = locked.stage_of(row) if locked else None
    own = _drop(_beside_stage(step), judging, 1 - judging.confidence)
    return StageState(
        stage=step.stage,
        model=row.name,
        changed=None if was is None else was.sha256 != row.sha256,
        metric=after.metric if after else "",
        before=beside.before.value if beside and beside.before else None,
        after=after.value if after else None,
        drop=drop.value if drop else None,
        interval=drop.interval if drop else None,
        own_drop=own.value if own else None,
        own_interval=own.interval if own else None,
        moved=surely.is_certain if surely else None,
        sha256=row.sha256,
    )


class _Drop(NamedTuple):
    """How much worse it is, and the bounds of that."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bounds, where both are known."""
        known = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if known else None

    @property
    def is_certain(self) -> bool:
        """Whether it is another value than before."""
        return not self.low <= 0 <= self.high


def _drop(pair: Pair | None, judging: Judging, level: float) -> _Drop | None:
    """The drop, each bound wrong at most as often as `level`."""
    if pair is None:
        return None
    if pair.is_same:
        return _Drop(0.0, 0.0, 0.0)
    evidence = drop_evidence(pair.before, pair.after, judging)
    return _Drop(evidence.value, *evidence.bounds(level, level, 0.0))
