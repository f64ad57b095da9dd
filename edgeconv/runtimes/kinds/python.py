"""The runtimes `litert`, `tflite-runtime` and `tensorflow`, in a Python of this machine.

Without a version it is the one in this Python, or in that of `--python`; `NAME==VERSION` gets an
environment of its own. `litert` has its CompiledModel too; `tflite-runtime` is what older devices
have, up to its last release 2.14; `tensorflow` without a version is what the trained model runs
in, and is measured beside the .tflite files anyway.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import LocalRuntime, RuntimePython

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.runtimes.conversation import Package
    from edgeconv.runtimes.interface import RuntimeChoice, RuntimeSettings

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
# Of all runtimes but `litert`.
_PACKAGES: dict[str, Package] = {"tensorflow": "tensorflow", "tflite-runtime": "tflite_runtime"}


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime that `choice` names, in the Python that has it.

    Raises `UsageError` for what a runtime of this machine cannot be told, `ToolFailed` where
    it is not to be had.
    """
    package = _PACKAGES.get(choice.name, "ai_edge_litert")
    _check(package, choice, settings)
    if choice.version:
        asked = parse_target_runtime(f"{choice.name}=={choice.version}")
        yield LocalRuntime(isolated_target(asked, settings.on_progress), settings)
        return
    try:
        runtime = LocalRuntime(
            RuntimePython(package=package, python=settings.python or sys.executable), settings
        )
    except ToolFailed as error:
        raise ToolFailed(
            error.message,
            hint=f"name a version, as in {choice.name}==2.14.0, which gets an environment of its "
            "own, or with --python the Python that has it",
        ) from error
    yield runtime


def _check(package: Package, choice: RuntimeChoice, settings: RuntimeSettings) -> None:
    if package == "tensorflow" and not choice.version and not settings.python:
        raise UsageError(
            "tensorflow without a version runs the trained model, not .tflite files",
            hint="tensorflow==2.15.1, or another version, runs them in its interpreter",
        )
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
