"""`check --update`: the present state into the lock, unless it lost something unnamed."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.reporting.units import counted
from edgeconv.requests.config.lock import accept
from edgeconv.types import RECIPE_NAMES, AcceptedDrop, UnprovenLimit, Verdict
from edgeconv.types.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from edgeconv.gate.check import Project
    from edgeconv.gate.jobs import ModelJob
    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Check, Checked, Finding, LockedModel

    Accepted = Mapping[str, Collection[str]]

TRAINED = "trained"
_UNPROVEN = "accepted as measured, unproven"
_NUMBER = (float, int)


def accept_state(
    project: Project, jobs: Sequence[ModelJob], checked: Checked, request: CheckRequest
) -> list[str]:
    """Write the checked models into the lock, the others as locked; returns notices.

    The lock is not changed where a model breaks its budget, or lost something against the lock
    that is not accepted. An inconclusive limit is accepted as what it is, unproven.
    """
    path, checking = project.lock, project.checking
    if not checked.ok:
        return _reasons(checked, path)
    command = _command(request)
    accept(
        [
            with_accepted(checking.accepted(job), checking.locked.get(job.name), check, command)
            for job, check in zip(jobs, checked.checks, strict=True)
        ],
        path,
        of=project.config.models,
    )
    unproven = [f for check in checked.checks for f in check.verdict.findings if _is_unproven(f)]
    also = f", with {counted(len(unproven), 'limit')} unproven" if unproven else ""
    return [f"accepted: {', '.join(job.name for job in jobs)} in {path}{also}"]


def _reasons(checked: Checked, path: Path) -> list[str]:
    lost = {check.name: unnamed_losses(check) for check in checked.checks if not check.verdict.ok}
    reasons = "; ".join(
        f"{name} {'is worse than what is locked' if names else 'breaks its budget'}"
        for name, names in lost.items()
    )
    notices = [f"not accepted, {path} is unchanged: {reasons}"]
    if words := [f"--accept-drop {name}" for names in lost.values() for name in names]:
        notices.append(
            "  next: find out what was lost and restore it, or accept an intended loss by its "
            f"name: {' '.join(words)}"
        )
    return notices


def _command(request: CheckRequest) -> str:
    """The command for the lock, without paths and what may be secret."""
    words = ["edgeconv check --update"]
    words += [f"--model {name}" for name in request.names]
    words += [f"--accept-drop {name}" for name in request.accept_drops]
    return " ".join(words)


def parse_accepted(texts: Sequence[str], models: Collection[str], *, updates: bool) -> Accepted:
    """The stages whose losses are accepted, by model; "" for all of a model's.

    Each text is NAME, NAME:RECIPE or NAME:trained. Raises `UsageError` for an unknown one, and
    for any without an update.
    """
    if texts and not updates:
        raise UsageError(
            f"--accept-drop {texts[0]} accepts nothing without --update", hint="add --update"
        )
    accepted: dict[str, set[str]] = {}
    for text in texts:
        name, colon, stage = text.partition(":")
        if name not in models:
            raise unknown_name("model of --accept-drop", name, models)
        if colon and stage not in (TRAINED, *RECIPE_NAMES):
            raise unknown_name("recipe of --accept-drop", stage, (TRAINED, *RECIPE_NAMES))
        accepted.setdefault(name, set()).add(stage)
    return accepted


def accept_losses(losses: Iterable[Finding], accepted: Collection[str]) -> Iterator[Finding]:
    """The losses; accepted ones become warnings."""
    for loss in losses:
        if {"", stage_of(loss)} & set(accepted):
            reason = "; ".join(filter(None, (loss.reason, "accepted by --accept-drop")))
            yield replace(loss, severity="warn", reason=reason)
        else:
            yield loss


def without_unproven(verdict: Verdict, locked: LockedModel | None) -> Verdict:
    """The verdict, in which inconclusive limits of the budget are warnings where they are accepted.

    Without `locked`, the model in the lock, all are accepted. Otherwise the lock's are, as long as
    the number is within the limit or no worse than when it was accepted.
    """
    stages = locked.stages if locked else ()
    known = {(s.name, each.limit, each.subject): each for s in stages for each in s.unproven}

    def is_accepted(finding: Finding) -> bool:
        if not _is_unproven(finding):
            return False
        if locked is None:
            return True
        was = known.get((finding.model, finding.limit, finding.subject))
        if was is None or was.allowed != finding.allowed or not isinstance(finding.actual, _NUMBER):
            return False
        if finding.kind.is_minimum:
            return finding.actual >= min(was.allowed, was.actual)
        return finding.actual <= max(was.allowed, was.actual)

    def accepted(finding: Finding) -> Finding:
        reason = "; ".join(filter(None, (finding.reason, _UNPROVEN)))
        return replace(finding, severity="warn", reason=reason)

    findings = (accepted(each) if is_accepted(each) else each for each in verdict.findings)
    return Verdict(findings=tuple(findings))


def _is_unproven(finding: Finding) -> bool:
    return finding.outcome == "inconclusive" and finding.reference != "lock"


def stage_of(finding: Finding) -> str:
    """The stage of a finding, as --accept-drop names it."""
    return finding.recipe or TRAINED


def unnamed_losses(check: Check) -> tuple[str, ...]:
    """The losses of an update that are not accepted, as --accept-drop names them."""
    lost = (f for f in check.verdict.findings if f.reference == "lock" and not f.ok)
    return tuple(dict.fromkeys(f"{check.name}:{stage_of(finding)}" for finding in lost))


def with_accepted(
    model: LockedModel, previous: LockedModel | None, check: Check, command: str
) -> LockedModel:
    """The model to be locked, with its accepted losses and the limits that are not proven.

    Losses that were accepted before are dropped where they have been made up for. `check` is that
    of the update.
    """
    accepted = previous.accepted if previous else ()
    earlier = tuple(drop for drop in accepted if _is_still_lost(drop, model))
    new = _now_accepted(check, command)
    stages = (replace(each, unproven=_unproven(check, each.name)) for each in model.stages)
    return replace(model, accepted=(*earlier, *new), stages=tuple(stages))


def _unproven(check: Check, stage: str) -> tuple[UnprovenLimit, ...]:
    """The inconclusive limits of a stage."""
    return tuple(
        UnprovenLimit(limit=f.limit, subject=f.subject, allowed=f.allowed, actual=f.actual)
        for f in check.verdict.findings
        if f.model == stage and _is_unproven(f)
        if isinstance(f.allowed, _NUMBER) and isinstance(f.actual, _NUMBER)
    )


def _now_accepted(check: Check, command: str) -> Iterator[AcceptedDrop]:
    broken: dict[str, list[str]] = {}
    for finding in check.verdict.findings:
        if finding.reference == "lock":
            broken.setdefault(finding.model, []).append(finding.limit)
    for state in check.stages:
        if state.model in broken and state.before is not None and state.after is not None:
            yield AcceptedDrop(
                stage=state.model,
                limits=tuple(dict.fromkeys(broken[state.model])),
                metric=state.metric,
                before=state.before,
                after=state.after,
                date=datetime.now(timezone.utc).date().isoformat(),
                command=command,
            )


def _is_still_lost(drop: AcceptedDrop, model: LockedModel) -> bool:
    for stage in model.stages:
        accuracy = stage.accuracy
        if stage.name == drop.stage and accuracy is not None and accuracy.metric == drop.metric:
            sign = 1 if accuracy.higher_is_better else -1
            return sign * accuracy.value < sign * drop.before
    return False
