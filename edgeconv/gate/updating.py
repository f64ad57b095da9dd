"""`check --update`: the present state into the lock, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.config.lock import accept
from edgeconv.gate.accepting import unnamed, with_accepted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgeconv.gate.jobs import ModelJob
    from edgeconv.gate.project import Project
    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Checked


def accept_state(
    project: Project, chosen: Sequence[ModelJob], checked: Checked, asked: CheckRequest
) -> list[str]:
    """Write the lock: the chosen models as they are, all others as locked; and what to say of it.

    It stays as it is where one of them breaks its budget, or lost something beside the lock that
    is not among the losses to be accepted.
    """
    place, checking = project.lock, project.checking
    if not checked.ok:
        return _reasons(checked, place)
    command = _command(asked)
    accept(
        [
            with_accepted(checking.accepted(job), checking.locked.get(job.name), check, command)
            for job, check in zip(chosen, checked.checks, strict=True)
        ],
        place,
        of=project.config.models,
    )
    return [f"accepted: {', '.join(job.name for job in chosen)} in {place}"]


def _reasons(checked: Checked, place: Path) -> list[str]:
    broken = [check for check in checked.checks if not check.verdict.ok]
    lost = {check.name: unnamed(check) for check in broken}
    reasons = "; ".join(
        f"{name} {'is worse than what is locked' if names else 'breaks its budget'}"
        for name, names in lost.items()
    )
    told = [f"not accepted, {place} is as it was: {reasons}"]
    if words := [f"--accept-drop {name}" for names in lost.values() for name in names]:
        told.append(
            "  next: find out what was lost, and restore it; a loss that is meant is accepted by "
            f"its name: {' '.join(words)}"
        )
    return told


def _command(asked: CheckRequest) -> str:
    """What was typed to accept, for the lock: without places, and what may be secret."""
    words = ["edgeconv check --update"]
    words += [f"--model {name}" for name in asked.names]
    words += [f"--accept-drop {name}" for name in asked.accept_drops]
    return " ".join(words)
