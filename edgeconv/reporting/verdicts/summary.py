"""A check in words: which stage moved, what differs from the lock, and possible causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.units import drop_value
from edgeconv.system.store import version_changes
from edgeconv.types import EVERY_RECIPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edgeconv.types import Finding, LockedModel, StageName, StageState, Verdict

_LONGEST_FIRST = sorted(EVERY_RECIPE, key=len, reverse=True)
_MOST_CHANGES = 4
# A sentence that begins with one of these, and not with a name, gets a capital letter.
_WORDS = ("the", "every", "no", "what")
_BEFORE: dict[StageName, tuple[StageName, ...]] = {
    "checkpoint": (),
    "trained": ("checkpoint",),
    "float32": ("trained",),
    "quantized": ("float32", "trained"),
}


def summary(verdict: Verdict, stages: Sequence[StageState], changed: Sequence[str]) -> str:
    """One to three sentences: which stage moved, possible causes, and what else fails."""
    is_locked = any(stage.changed is not None for stage in stages)
    sentences = [_of_lock(stages, changed) if is_locked else _of_flow(stages)]
    if not any(stage.moved and stage.drop is not None and stage.drop > 0 for stage in stages):
        sentences += _of_broken([finding for finding in verdict.findings if not finding.ok])
    return " ".join(
        f"{text[0].upper() + text[1:] if text.split()[0] in _WORDS else text}."
        for text in sentences
    )


def changes(
    locked: LockedModel, inputs: Mapping[str, str], tools: Mapping[str, str]
) -> tuple[str, ...]:
    """What differs from the lock, a clause each: "the source model changed since the lock"."""
    clauses = [*_settings(locked, inputs)]
    clauses += [f"the {name} {change} since the lock" for name, change in _changed(locked, inputs)]
    return (*clauses, *version_changes(locked.tools, tools))


def _changed(locked: LockedModel, inputs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(locked.inputs.keys() | inputs.keys()):
        if _is_setting(name):
            continue
        shown = "source model" if name == "source" else units.plain(name)
        is_plural = name.split()[0].endswith("s")
        if name not in inputs:
            yield shown, f"{'were' if is_plural else 'was'} removed"
        elif name not in locked.inputs:
            yield shown, f"{'are' if is_plural else 'is'} new"
        elif inputs[name] != locked.inputs[name]:
            yield shown, "changed"


def _settings(locked: LockedModel, inputs: Mapping[str, str]) -> Iterator[str]:
    for name in filter(_is_setting, sorted(locked.inputs.keys() | inputs.keys())):
        before, after = locked.inputs.get(name, "default"), inputs.get(name, "default")
        if before != after:
            yield f"{units.plain(name)} {units.plain(before)} → {units.plain(after)}"


def _is_setting(name: str) -> bool:
    return " --" in name


def _of_lock(stages: Sequence[StageState], changed: Sequence[str]) -> str:
    why = f"; {_listed(changed, _MOST_CHANGES)}" if changed else ""
    compared = [stage for stage in stages if stage.drop is not None]
    if not compared:
        return f"no accuracy can be compared with the lock{why}"
    for verb, sign in (("lost", 1), ("gained", -1)):
        if moved := [each for each in compared if each.moved and sign * (each.drop or 0) > 0]:
            return _of_moved(stages, moved, verb) + why
    if other := [stage for stage in compared if stage.changed]:
        names, their = _listed(map(_name, other)), "its" if len(other) == 1 else "their"
        because = f" ({_listed(changed, _MOST_CHANGES)})" if changed else ""
        return f"the bytes of {names} changed{because}, {their} accuracy did not beyond chance"
    return f"every model is as locked{why}"


def _of_moved(stages: Sequence[StageState], moved: Sequence[StageState], verb: str) -> str:
    """The first stages that moved, those that follow them, and the stage before, if it is sound."""
    first = {stage.model: stage for stage in (_beginning(stages, each) for each in moved)}
    change = _listed(
        f"{_name(stage)} {verb} {_amount(stage, abs(stage.drop or 0))}" for stage in first.values()
    )
    follows = [_name(stage) for stage in moved if stage.model not in first]
    after = f", and {_listed(follows)} with it" if follows else ""
    sound = _previous(stages, next(iter(first.values())))
    if sound is None or sound.drop is None or sound.moved:
        return change + after
    state = "as good as" if sound.changed else "as"
    return f"{_name(sound)} is {state} locked, but {change}{after}"


def _beginning(stages: Sequence[StageState], state: StageState) -> StageState:
    """The earliest stage that has at least half of the change of this one."""
    previous = _previous(stages, state)
    if previous is None or 2 * (previous.drop or 0) / (state.drop or 1) < 1:
        return state
    return _beginning(stages, previous)


def _of_flow(stages: Sequence[StageState]) -> str:
    """Without a lock: which stage lost accuracy against the stage before."""
    losses = []
    for stage in stages:
        if stage.own_interval is not None and stage.own_interval[0] > 0:
            previous = _previous(stages, stage)
            reference = f" against {_name(previous)}" if previous else ""
            losses.append(f"{_name(stage)} lost {_amount(stage, stage.own_drop or 0)}{reference}")
    if losses:
        return _listed(losses)
    if all(stage.own_drop is None for stage in stages):
        return "no accuracy was compared"
    return "no stage lost accuracy beyond chance"


def _of_broken(broken: Sequence[Finding]) -> Iterator[str]:
    for outcome, what in (("failed", "does not hold"), ("missing", "was not measured")):
        alike = [finding for finding in broken if finding.outcome == outcome]
        names = dict.fromkeys(f"{each.limit} of {units.plain(each.model)}" for each in alike)
        if names:
            yield f"what {what} is {_listed(names, _MOST_CHANGES)}"


def _previous(stages: Sequence[StageState], state: StageState) -> StageState | None:
    by_name = {stage.stage: stage for stage in reversed(stages)}
    return next((by_name[name] for name in _BEFORE[state.stage] if name in by_name), None)


def _name(state: StageState) -> str:
    if state.stage in ("checkpoint", "trained"):
        return "the checkpoint" if state.stage == "checkpoint" else "the trained model"
    recipes = (recipe for recipe in _LONGEST_FIRST if state.model.endswith(recipe))
    return next(recipes, units.plain(state.model))


def _amount(state: StageState, drop: float) -> str:
    """A loss in percentage points, or in the metric's unit with its name."""
    value = drop_value(drop, state.metric)
    return value if value.endswith("pp") else f"{value} of {units.plain(state.metric)}"


def _listed(parts: Iterable[str], most: int | None = None) -> str:
    """In words: a, b and c; with `most`, the last of them is how many more there are."""
    clauses = list(parts)
    if most is not None and len(clauses) > most:
        clauses = [*clauses[: most - 1], f"{len(clauses) - most + 1} more"]
    return " and ".join(part for part in (", ".join(clauses[:-1]), *clauses[-1:]) if part)
