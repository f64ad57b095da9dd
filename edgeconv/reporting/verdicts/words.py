"""Texts and tables of a check that every format has, as harmless text."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from edgeconv.reporting import units
from edgeconv.reporting.limits import Word, closing_line, confidence, word_of
from edgeconv.reporting.tables import Column, Table, table
from edgeconv.reporting.units import Interval, drop_value, interval_value, value_of
from edgeconv.system.store import version_changes
from edgeconv.types import (
    EVERY_RECIPE,
    AcceptedDrop,
    Check,
    Checked,
    ClassDrop,
    Finding,
    LockedModel,
    StageName,
    StageState,
    Verdict,
)

_ORDER: tuple[Word, ...] = ("FAIL", "–", "?", "WARN", "PASS")


def worst_first(check: Check) -> list[Finding]:
    """The findings: failures, then warnings, then what holds, each in the order of the budget.

    Broken limits come before those that were not measured and inconclusive ones.
    """

    def rank(finding: Finding) -> tuple[bool, bool, int]:
        return finding.ok, finding.outcome == "passed", _ORDER.index(word_of(finding))

    return sorted(check.verdict.findings, key=rank)


def broken_findings(checked: Checked) -> Iterator[tuple[Check, Finding]]:
    """All findings that do not hold: failures first, then warnings."""
    for is_ok in (False, True):
        for check in checked.checks:
            for finding in check.verdict.findings:
                if finding.outcome != "passed" and finding.ok == is_ok:
                    yield check, finding


def level_of(finding: Finding) -> Literal["error", "warning"]:
    """The level of a finding as GitHub and GitLab name it."""
    return "warning" if finding.ok else "error"


def headline(check: Check) -> str:
    """One line for a check: its name, the outcome of its limits, and what guards it."""
    return f"{units.plain(check.name)}: {_guarded(closing_line(check.verdict), [check])}"


def closing(checked: Checked) -> str:
    """One line for all checks: the number of models, and which of them fail."""
    total = units.counted(len(checked.checks), "model")
    if not checked.checks:
        return "No model was checked."
    broken = [units.plain(check.name) for check in checked.checks if not check.verdict.ok]
    if broken:
        return f"{len(broken)} of {total}: {', '.join(broken)}."
    return _guarded(f"{total} within budget.", checked.checks)


def _guarded(line: str, checks: Sequence[Check]) -> str:
    """The line, which says where nothing is compared with a lock."""
    missing = next((check.unlocked for check in checks if check.unlocked), "")
    if not missing:
        return line
    return f"{line.removesuffix('.')}; {missing}: retraining is not guarded (check --update)."


def file_of(checked: Checked) -> str:
    """The path of the configuration, relative to the repository's root in a CI job."""
    top = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR")
    if not top or not checked.config:
        return checked.config
    path = os.path.relpath(checked.config, top)
    return checked.config if path.startswith(os.pardir) else path


def statistics_line(check: Check) -> str:
    """The settings of the statistical tests."""
    statistics = check.statistics
    resamples = "" if statistics.method == "mcnemar" else f", {statistics.resamples} resamples"
    severity = "an error" if statistics.inconclusive == "error" else "a warning"
    return (
        f"tested at {confidence(statistics.confidence)}, method "
        f"{statistics.method}{resamples}, seed {statistics.seed}; inconclusive is {severity}"
    )


def remarks(check: Check) -> Iterator[str]:
    """Further lines about a check, the most important first."""
    yield from (f"changed: {units.plain(change)}" for change in check.changes)
    yield from map(_accepted, check.accepted)
    yield from (f"note: {units.plain(note)}" for note in check.notes)
    if check.reused:
        yield "note: nothing changed: this is the result of the last check"


def _accepted(drop: AcceptedDrop) -> str:
    before, after = (value_of(drop.metric, value) for value in (drop.before, drop.after))
    return (
        f"accepted: {units.plain(drop.stage)} from {before} to {after} on {units.plain(drop.date)} "
        f"by `{units.plain(drop.command)}`"
    )


_FILES = {None: "not locked", False: "as locked", True: "changed"}


def stage_table(check: Check) -> Table | None:
    """One row a stage, from the checkpoint to the quantized files; None without stages."""
    if not check.stages:
        return None
    metric = units.plain(_metric(check)) or "value"
    columns: list[Column[StageState]] = [
        Column("stage", lambda stage: stage.stage, is_text=True),
        Column("model", lambda stage: units.plain(stage.model), is_text=True, wraps=True),
        Column("file", lambda stage: _FILES[stage.changed], is_text=True),
        Column("moved", _moved, is_text=True),
        Column(f"{metric} locked", lambda stage: value_of(stage.metric, stage.before)),
        Column("now", lambda stage: value_of(stage.metric, stage.after)),
        Column("drop since the lock", lambda each: _drop(each.metric, each.drop, each.interval)),
        Column(
            "drop from the stage before",
            lambda each: _drop(each.metric, each.own_drop, each.own_interval),
        ),
    ]
    known = (
        column
        for column in columns[3:]
        if any(column.cell(stage) != units.ABSENT for stage in check.stages)
    )
    return table([*columns[:3], *known], check.stages, caption="Stages")


def class_table(check: Check, most: int) -> Table | None:
    """At most `most` classes and slices that dropped, the worst first; None without any."""
    if not check.classes:
        return None
    metric = _metric(check)
    columns: list[Column[ClassDrop]] = [
        Column("name", lambda drop: units.plain(drop.name), is_text=True),
        Column("kind", lambda drop: drop.kind, is_text=True),
        Column("model", lambda drop: units.plain(drop.model), is_text=True, wraps=True),
        Column("from", lambda drop: drop.reference or units.ABSENT, is_text=True),
        Column("samples", lambda drop: str(drop.samples)),
        Column("before", lambda drop: value_of(metric, drop.before)),
        Column("after", lambda drop: value_of(metric, drop.after)),
        Column("drop", lambda drop: _drop(metric, drop.drop, drop.interval)),
    ]
    rows = _merged(check.classes)
    left_out = max(0, len(rows) - most)
    return table(columns, rows[:most], caption="Classes that dropped", left_out=left_out)


def _merged(drops: Iterable[ClassDrop]) -> list[ClassDrop]:
    """One row for the models that lost a class alike, as all do where the trained model lost it."""
    models: dict[ClassDrop, list[str]] = {}
    for each in drops:
        models.setdefault(replace(each, model=""), []).append(each.model)
    return [replace(each, model=", ".join(names)) for each, names in models.items()]


def _metric(check: Check) -> str:
    return next((stage.metric for stage in check.stages if stage.metric), "")


def _moved(stage: StageState) -> str:
    if stage.moved is None:
        return units.ABSENT
    drop = stage.own_drop if stage.drop is None else stage.drop
    if not stage.moved or not drop:
        return "no"
    return "worse" if drop > 0 else "better"


def _drop(metric: str, drop: float | None, interval: Interval | None) -> str:
    return units.with_interval(drop_value(drop, metric), interval_value(interval, metric))


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
