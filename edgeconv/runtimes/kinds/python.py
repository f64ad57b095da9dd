"""The runtimes `litert`, `tflite-runtime` and `tensorflow`, in a Python of this machine.

Without a version it is the one in this Python, or in `--python`; `NAME==VERSION` gets its
own environment. `litert` has the CompiledModel too. `tflite-runtime` is the runtime of older
devices, up to its last release 2.14. `tensorflow` without a version runs the trained model, which
is measured with the .tflite files anyway.
"""

import contextlib
import sys
from collections.abc import Iterator

from edgeconv.runtimes.choice import target_runtime
from edgeconv.runtimes.conversation import Package
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.isolated import distribution_of, isolated_target
from edgeconv.runtimes.local import LocalRuntime, RuntimePython
from edgeconv.types import RuntimeChoice
from edgeconv.types.errors import ToolFailed, UsageError

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
HAS_VERSIONS = True
_EXAMPLES = {"litert": "2.1.0", "tensorflow": "2.15.1", "tflite-runtime": "2.14.0"}
# What pip does not know: it was built for numpy 1.
_TOO = {"tflite-runtime": " 'numpy<2'"}
# In the traceback of a Python without it, which cannot start runner.py.
_NO_NUMPY = "No module named 'numpy'"
# All runtimes but `litert`.
_PACKAGES: dict[str, Package] = {"tensorflow": "tensorflow", "tflite-runtime": "tflite_runtime"}


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime that `choice` names, in the Python that has it.

    Raises `UsageError` for settings that it does not have, `ToolFailed` if it is missing.
    """
    package = _PACKAGES.get(choice.name, "ai_edge_litert")
    _check(package, choice, settings)
    if choice.version:
        target = target_runtime(choice.name, choice.version)
        yield LocalRuntime(isolated_target(target, settings.on_progress), settings)
        return
    python = settings.python or sys.executable
    try:
        runtime = LocalRuntime(RuntimePython(package=package, python=python), settings)
    except ToolFailed as error:
        raise _without_runtime(error, choice.name, settings.python) from error
    yield runtime


def _without_runtime(error: ToolFailed, name: str, python: str) -> ToolFailed:
    """The error for a Python, "" for the present one, without the runtime or its numpy."""
    message = error.message
    if _NO_NUMPY in message:
        message = f"{python} has no numpy, which every runtime needs"
    own = f"name a version, as in {name}=={_EXAMPLES[name]}, which gets its own environment"
    if not python:
        return ToolFailed(message, hint=f"{own}, or the Python that has it with --python")
    packages = f"{distribution_of(name)}{_TOO.get(name, '')}"
    install = f"install it there, with `{python} -m pip install {packages}`"
    return ToolFailed(message, hint=f"{install}; or remove --python, and {own}")


def _check(package: Package, choice: RuntimeChoice, settings: RuntimeSettings) -> None:
    if package == "tensorflow" and not choice.version and not settings.python:
        raise UsageError(
            "tensorflow without a version runs the trained model, not .tflite files",
            hint="name a version, as in tensorflow==2.15.1, whose interpreter runs them",
        )
    if choice.location:
        raise UsageError(
            f"{choice.name} runs on this machine, and cannot take {choice.location!r}",
            hint=f"use {choice.name}==VERSION, or ssh:user@host for another machine",
        )
    if choice.version and settings.python:
        raise UsageError(
            f"{choice.name}=={choice.version} gets its own environment, and --python names another",
            hint="remove --python, or the version",
        )
    if settings.accelerator == "webgpu":
        raise UsageError(
            f"{choice.name} has no WebGPU", hint="choose --runtime web, or --runtime gpu"
        )
    if settings.accelerator == "compiled" and package != "ai_edge_litert":
        raise UsageError(
            f"{choice.name} has no CompiledModel",
            hint="choose --runtime litert, or the interpreter",
        )


def refuse_settings(choice: RuntimeChoice, settings: RuntimeSettings, why: str) -> None:
    """Raise `UsageError` for another accelerator or Python than `choice` has."""
    if settings.accelerator != "interpreter" or settings.python:
        named = f"--python {settings.python}" if settings.python else "--accelerator"
        raise UsageError(
            f"{choice.name} {why}, and {named} is given", hint=f"remove {named.partition(' ')[0]}"
        )
