"""Which Python has a runtime of this machine: the present one, one that was named, or its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import LocalRuntime, Target
from edgeconv.runtimes.targets import parse_target_runtime

if TYPE_CHECKING:
    from edgeconv.runtimes.conversation import Package
    from edgeconv.runtimes.interface import Choice, Settings


def opened_locally(package: Package, choice: Choice, settings: Settings) -> LocalRuntime:
    """The runtime that `choice` names, in the Python that has it.

    Raises `UsageError` for what a runtime of this machine cannot be told, `ToolFailed` where
    it is not to be had.
    """
    _check(package, choice, settings)
    if choice.version:
        asked = parse_target_runtime(f"{choice.name}=={choice.version}")
        return LocalRuntime(isolated_target(asked, settings.on_progress), settings)
    target = Target(package=package, python=settings.python or sys.executable)
    try:
        return LocalRuntime(target, settings)
    except ToolFailed as error:
        raise ToolFailed(
            error.message,
            hint=f"name a version, as in {choice.name}==2.14.0, which gets an environment of its "
            "own, or with --python the Python that has it",
        ) from error


def _check(package: Package, choice: Choice, settings: Settings) -> None:
    if choice.place:
        raise UsageError(
            f"{choice.name} runs on this machine, and {choice.place!r} is no version",
            hint=f"{choice.name}==VERSION, or ssh:user@host for another machine",
        )
    if choice.version and settings.python:
        raise UsageError(
            f"{choice.name}=={choice.version} gets an environment of its own, so that --python "
            "says nothing",
            hint="leave the one or the other out",
        )
    if settings.accelerator == "compiled" and package != "ai_edge_litert":
        raise UsageError(
            f"{choice.name} has no CompiledModel", hint="--runtime litert, or leave it out"
        )
