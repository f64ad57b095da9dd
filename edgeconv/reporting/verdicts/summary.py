"""What a check found, in words: which stage moved, what is other than locked, why that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.values import drop_value
from edgeconv.types import EVERY_RECIPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edgeconv.types import Finding, LockedModel, StageName, StageState, Verdict

_LONGEST_FIRST = sorted(EVERY_RECIPE, key=len, reverse=True)
_MOST_CHANGES = 4
_WORDS = ("the", "every", "no", "what")
_BEFORE: dict[StageName, tuple[StageName, ...]] = {
    "checkpoint": (),
    "trained": ("checkpoint",),
    "float32": ("trained",),
    "quantized": ("float32", "trained"),
}


def summary(verdict: Verdict, stages: Sequence[StageState], changed: Sequence[str]) -> str:
    """One to three sentences: which stage moved, why that may be, and what else fails."""
    said = [_of_lock(stages, changed) if _has_lock(stages) else _of_flow(stages)]
    broken = [finding for finding in verdict.findings if not finding.ok]
    if not any(_is_worse(one) for one in stages):
        said += _of_broken(broken)
    return " ".join(f"{_begun(one)}." for one in said)


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


def _begun(text: str) -> str:
    """With a capital letter, but where it begins with a name."""
    return text[0].upper() + text[1:] if text.split()[0] in _WORDS else text


def _has_lock(stages: Sequence[StageState]) -> bool:
    return any(one.changed is not None for one in stages)


def _is_worse(state: StageState) -> bool:
    return bool(state.moved and state.drop is not None and state.drop > 0)


def _of_lock(stages: Sequence[StageState], changed: Sequence[str]) -> str:
    why = f"; {_listed(changed, _MOST_CHANGES)}" if changed else ""
    compared = [one for one in stages if one.drop is not None]
    if not compared:
        return f"no accuracy can be compared with the lock{why}"
    for verb, sign in (("lost", 1), ("gained", -1)):
        if moved := [one for one in compared if one.moved and sign * (one.drop or 0) > 0]:
            return _of_moved(stages, moved, verb) + why
    if other := [one for one in compared if one.changed]:
        names, them = _listed(map(_called, other)), "its" if len(other) == 1 else "their"
        because = f" ({_listed(changed, _MOST_CHANGES)})" if changed else ""
        return f"the bytes of {names} changed{because}, {them} accuracy did not beyond chance"
    return f"every model is as locked{why}"


def _of_moved(stages: Sequence[StageState], moved: Sequence[StageState], verb: str) -> str:
    """Where it begins, after a stage that is as it was; and who has it from there."""
    begins = {(one := _beginning(stages, each)).model: one for each in moved}
    said = _listed(
        f"{_called(one)} {verb} {_amount(one, abs(one.drop or 0))}" for one in begins.values()
    )
    follows = [_called(one) for one in moved if one.model not in begins]
    after = f", and {_listed(follows)} with it" if follows else ""
    sound = _previous(stages, next(iter(begins.values())))
    if sound is None or sound.drop is None or sound.moved:
        return said + after
    how = "as good as" if sound.changed else "as"
    return f"{_called(sound)} is {how} locked, but {said}{after}"


def _beginning(stages: Sequence[StageState], state: StageState) -> StageState:
    """The first stage that has most of the change of this one."""
    previous = _previous(stages, state)
    if previous is None or 2 * (previous.drop or 0) / (state.drop or 1) < 1:
        return state
    return _beginning(stages, previous)


def _of_flow(stages: Sequence[StageState]) -> str:
    """Without a lock: who lost what on the way from the trained model."""
    lost = [one for one in stages if one.own_interval is not None and one.own_interval[0] > 0]
    losses = []
    for one in lost:
        previous = _previous(stages, one)
        beside = f" beside {_called(previous)}" if previous else ""
        losses.append(f"{_called(one)} lost {_amount(one, one.own_drop or 0)}{beside}")
    if losses:
        return _listed(losses)
    if all(one.own_drop is None for one in stages):
        return "no accuracy was compared"
    return "no stage lost accuracy beyond chance"


def _of_broken(broken: Sequence[Finding]) -> Iterator[str]:
    for outcome, what in (("failed", "does not hold"), ("missing", "was not measured")):
        alike = [one for one in broken if one.outcome == outcome]
        names = dict.fromkeys(f"{one.limit} of {units.plain(one.model)}" for one in alike)
        if names:
            yield f"what {what} is {_listed(names, _MOST_CHANGES)}"


def _previous(stages: Sequence[StageState], state: StageState) -> StageState | None:
    """The state of the stage that this one was made from."""
    for name in _BEFORE[state.stage]:
        for one in stages:
            if one.stage == name:
                return one
    return None


def _called(state: StageState) -> str:
    """Such as "the trained model" and "int8"."""
    if state.stage in ("checkpoint", "trained"):
        return "the checkpoint" if state.stage == "checkpoint" else "the trained model"
    recipe = (one for one in _LONGEST_FIRST if state.model.endswith(one))
    return next(recipe, units.plain(state.model))


def _amount(state: StageState, drop: float) -> str:
    """A loss in percentage points, or in the metric's own unit with its name."""
    value = drop_value(drop, state.metric)
    return value if value.endswith("pp") else f"{value} of {units.plain(state.metric)}"


def _listed(parts: Iterable[str], most: int | None = None) -> str:
    """In words: a, b and c; with `most`, how many more there are."""
    found = list(parts)
    if most is not None and len(found) > most:
        found = [*found[: most - 1], f"{len(found) - most + 1} more"]
    return " and ".join(part for part in (", ".join(found[:-1]), *found[-1:]) if part)
