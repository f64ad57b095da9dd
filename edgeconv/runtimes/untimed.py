"""Runtimes with the answers of a device and without its times, in a separate environment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.runtimes.choice import default_target, target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from edgeconv.runtimes.interface import RuntimeSettings
    from edgeconv.types import RuntimeChoice


def refuse_settings(choice: RuntimeChoice, settings: RuntimeSettings, why: str) -> None:
    """Raise `UsageError` for another accelerator or Python than `choice` has."""
    if settings.accelerator != "interpreter" or settings.python:
        named = f"--python {settings.python}" if settings.python else "--accelerator"
        raise UsageError(
            f"{choice.name} {why}, and {named} is given",
            hint=f"remove {named.partition(' ')[0]}",
        )


def untimed_runtime(
    choice: RuntimeChoice, settings: RuntimeSettings, once_s: float = math.inf
) -> LocalRuntime:
    """The runtime of the version that `choice` names, or of the usual one.

    The first invoke of a model may take `once_s`.

    Raises `UsageError` for settings that it does not have, and as `isolated_target` does.
    """
    refuse_settings(choice, settings, "has a separate environment and no accelerator")
    if choice.version:
        target = target_runtime(choice.name, choice.version)
    else:
        target = default_target(choice.name)
    python = isolated_target(target, settings.on_progress)
    return LocalRuntime(python, settings, has_times=False, once_s=once_s)
