"""`edgeconv check --update`: the present state into the lock, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from edgeconv.gate.flow import Checking
    from edgeconv.gate.jobs import Job
    from edgeconv.types import Checked


def accept_state(
    checking: Checking,
    chosen: tuple[Job, ...],
    checked: Checked,
    place: Path,
    models: Collection[str],
    options: dict[str, Any],
) -> None:
    """Write the lock: the chosen models as they are, the others of `models` as locked.

    It stays as it is where one of them breaks its budget, or lost something beside the lock that
    --accept-drop does not name. Either is said.
    """
    from edgeconv.gate.accepting import with_accepted
    from edgeconv.gate.lock import accept

    if not checked.ok:
        _say_why(checked, place)
        return
    command = _command(options)
    accept(
        [
            with_accepted(checking.accepted(job), checking.locked.get(job.name), check, command)
            for job, check in zip(chosen, checked.checks, strict=True)
        ],
        place,
        of=models,
    )
    echo(f"accepted: {', '.join(job.name for job in chosen)} in {place}", err=True)


def _say_why(checked: Checked, place: Path) -> None:
    from edgeconv.gate.accepting import unnamed

    broken = [check for check in checked.checks if not check.verdict.ok]
    lost = {check.name: unnamed(check) for check in broken}
    reasons = "; ".join(
        f"{name} {'is worse than what is locked' if names else 'breaks its budget'}"
        for name, names in lost.items()
    )
    echo(f"not accepted, {place} is as it was: {reasons}", err=True)
    if words := [f"--accept-drop {name}" for names in lost.values() for name in names]:
        echo(
            "  next: find out what was lost, and restore it; a loss that is meant is accepted by "
            f"its name: {' '.join(words)}",
            err=True,
        )


def _command(options: dict[str, Any]) -> str:
    """What was typed to accept, for the lock: without places, and what may be secret."""
    words = ["edgeconv check --update"]
    words += [f"--model {name}" for name in options["names"]]
    words += [f"--accept-drop {name}" for name in options["accept_drops"]]
    return " ".join(words)
