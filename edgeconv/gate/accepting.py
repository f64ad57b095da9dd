"""The present state in place of what is locked: what was lost, and whether it was named."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError, unknown_name
from edgeconv.types import RECIPE_NAMES, AcceptedDrop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from edgeconv.types import Check, Finding, LockedModel

    Accepted = Mapping[str, Collection[str]]

TRAINED = "trained"


def parse_accepted(texts: Iterable[str], models: Collection[str]) -> Accepted:
    """The stages whose losses are accepted, by model; "" for all of a model's.

    Each text is NAME, NAME:RECIPE or NAME:trained. Raises `UsageError` for an unknown one.
    """
    found: dict[str, set[str]] = {}
    for text in texts:
        name, colon, stage = text.partition(":")
        if name not in models:
            raise unknown_name("model of --accept-drop", name, models)
        if colon and stage not in (TRAINED, *RECIPE_NAMES):
            raise unknown_name("recipe of --accept-drop", stage, (TRAINED, *RECIPE_NAMES))
        found.setdefault(name, set()).add(stage)
    return found


def judged_losses(losses: Iterable[Finding], accepted: Collection[str]) -> Iterator[Finding]:
    """The losses; those that are accepted warn only."""
    for loss in losses:
        if {"", stage_of(loss)} & set(accepted):
            said = "; ".join(filter(None, (loss.reason, "accepted by --accept-drop")))
            yield msgspec.structs.replace(loss, severity="warn", reason=said)
        else:
            yield loss


def stage_of(finding: Finding) -> str:
    """What --accept-drop calls the model of a finding."""
    return finding.recipe or TRAINED


def unnamed(check: Check) -> tuple[str, ...]:
    """The losses of an update that nobody accepted, as --accept-drop takes them."""
    lost = (f for f in check.verdict.findings if f.reference == "lock" and not f.ok)
    return tuple(dict.fromkeys(f"{check.name}:{stage_of(one)}" for one in lost))


def with_accepted(
    model: LockedModel, was: LockedModel | None, check: Check, command: str
) -> LockedModel:
    """The model to be locked, with the losses that were accepted: now, and before this.

    `check` is that of the update. What was accepted once is left out where it was made up for.
    """
    earlier = tuple(one for one in was.accepted if _is_still_lost(one, model)) if was else ()
    new = _now_accepted(check, command)
    return msgspec.structs.replace(model, accepted=(*earlier, *new))


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


def refuse_without_update(texts: Sequence[str], *, updates: bool) -> None:
    """Raise `UsageError` for a loss that is accepted where nothing is."""
    if texts and not updates:
        raise UsageError(
            f"--accept-drop {texts[0]} accepts nothing without --update", hint="add --update"
        )
