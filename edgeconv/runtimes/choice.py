"""The texts that name a runtime: of `--runtime` and of `--target-runtime`.

A target runtime is `litert`, `litert==2.1.0`, `tflite-micro` or `tflite-runtime==2.14.0`. The
location in `--runtime NAME:LOCATION` may end in options: `host?key=value&key=value`.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING, cast

from edgeconv.plugins import runtime_module
from edgeconv.types import RuntimeChoice, TargetRuntime
from edgeconv.types.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from types import ModuleType

    from edgeconv.runtimes.interface import Runtime, RuntimeSettings
    from edgeconv.types import Accelerator

# What a name without a version means; tflite-runtime has no release after 2.14, and later
# releases of TensorFlow for Python cannot run Select-TF operators in its interpreter.
# tflite-micro has a build of each day, and no releases.
_DEFAULT_VERSION = {
    "arm64": "",
    "armv7": "2.14.0",
    "gpu": "",
    "litert": "",
    "tensorflow": "2.15.1",
    "tflite-micro": "0.dev20261023182759",
    "tflite-runtime": "2.14.0",
}
_GPU = "gpu"
_PRESENT = RuntimeChoice(name="litert")
_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)?((?:a|b|rc|\.post)\d+)?")
_DAILY = re.compile(r"0\.dev\d{14}")


def parse_choice(text: str) -> RuntimeChoice:
    """The choice in NAME, NAME==VERSION or NAME:LOCATION. Raises `UsageError`."""
    is_location = ":" in text and not text.partition(":")[0].count("==")
    name, sign, rest = (part.strip() for part in text.partition(":" if is_location else "=="))
    module = runtime_module(name)
    if sign and not rest:
        raise UsageError(
            f"runtime {text!r} has nothing after {sign}", hint=f"{name}, or {name}{sign}SOMETHING"
        )
    if is_location:
        return _located(name, rest, module)
    if rest and not getattr(module, "HAS_VERSIONS", False):
        raise UsageError(
            f"the runtime {name} has no versions to choose from: =={rest}",
            hint=f"remove =={rest}",
        )
    return RuntimeChoice(name=name, version=rest)


def runs_here_alone(choice: RuntimeChoice) -> bool:
    """Whether a runtime runs on this machine, from edgeconv's own environments.

    Only a user may choose the others, which reach other machines or start programs.
    """
    return getattr(runtime_module(choice.name), "RUNS_HERE_ALONE", False)


def compared_with(choice: RuntimeChoice, accelerator: Accelerator) -> RuntimeChoice | None:
    """The runtime with whose answers to the same files `choice` is compared, if any."""
    name = getattr(runtime_module(choice.name), "COMPARES_WITH", {}).get(accelerator)
    return RuntimeChoice(name=name) if name else None


def verified_in(choice: RuntimeChoice) -> RuntimeChoice:
    """The LiteRT of this Python, where models are verified, for other kernels of this machine.

    Those are of other versions, and of devices. For all other runtimes it is `choice` itself.
    """
    has_versions = getattr(runtime_module(choice.name), "HAS_VERSIONS", False)
    is_here = runs_here_alone(choice) and has_versions
    return _PRESENT if is_here or compared_with(choice, "interpreter") else choice


def most_samples(choices: Iterable[RuntimeChoice]) -> dict[str, int]:
    """How many samples the slow runtimes of `choices` get where that is not chosen, by runtime."""
    most = {str(each): getattr(runtime_module(each.name), "MOST_SAMPLES", 0) for each in choices}
    return {text: count for text, count in most.items() if count}


def files_named(choice: RuntimeChoice) -> tuple[str, ...]:
    """The files that decide which programs a runtime starts."""
    named = getattr(runtime_module(choice.name), "files_named", None)
    return tuple(named(choice)) if named else ()


def open_runtime(
    choice: RuntimeChoice, settings: RuntimeSettings
) -> AbstractContextManager[Runtime]:
    """The runtime, opened and closed by its module. Raises as that does."""
    module = runtime_module(choice.name)
    return cast("AbstractContextManager[Runtime]", module.open_runtime(choice, settings))


def _located(name: str, text: str, module: ModuleType) -> RuntimeChoice:
    """The choice of NAME:LOCATION. Raises `UsageError` for an option that the runtime has not."""
    known = getattr(module, "OPTIONS", frozenset[str]())
    location, mark, written = text.partition("?") if known else (text, "", "")
    if not getattr(module, "HAS_LOCATION", True):
        location, mark, written = "", "?", text
    options = {}
    for part in written.split("&") if mark else ():
        option, equals, value = part.partition("=")
        if option not in known:
            raise unknown_name(f"option of the runtime {name}", option, known)
        if not equals or not value:
            raise UsageError(
                f"the runtime's option {option!r} has no value",
                hint=f"as in {name}:{location}?{option}=VALUE",
            )
        options[option] = value
    return RuntimeChoice(name=name, location=location, options=options)


def parse_target_runtime(text: str) -> TargetRuntime:
    """The runtime that `text` names. Raises `UsageError` for an unknown name or a bad version."""
    name, separator, version = (part.strip() for part in text.partition("=="))
    return target_runtime(name, version) if separator else default_target(name)


def default_target(name: str) -> TargetRuntime:
    """The runtime that a name without a version means. Raises `UsageError` for an unknown name."""
    if name not in _DEFAULT_VERSION:
        raise unknown_name("target runtime", name, _DEFAULT_VERSION)
    version = _DEFAULT_VERSION[name]
    if name == "arm64":
        # That of this environment, so that only the kernels differ.
        version = metadata.version("ai-edge-litert")
    return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]


def recorded_target(text: str) -> TargetRuntime:
    """The runtime that a manifest records, such as `tflite_runtime 2.14.0`. Raises `UsageError`.

    The text of a GPU is `gpu` and its name.
    """
    package, _, version = text.partition(" ")
    name = {"ai_edge_litert": "litert"}.get(package, package.replace("_", "-"))
    if name == _GPU:
        return default_target(name)
    return target_runtime(name, version)


def target_runtime(name: str, version: str) -> TargetRuntime:
    """The runtime of a version, such as 2.14, which is 2.14.0.

    Raises `UsageError` for an unknown name, and for what is not a version.
    """
    default_target(name)
    if name == _GPU:
        raise UsageError(
            f"{name} is the GPU delegate of the installed LiteRT, and has no versions: =={version}",
            hint=f"remove =={version}",
        )
    if _DAILY.fullmatch(version):
        return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]
    if not (match := _VERSION.fullmatch(version)):
        example = _DEFAULT_VERSION[name] or "2.1.0"
        raise UsageError(
            f"the runtime {name}=={version} has no version after ==",
            hint=f"as in {name}=={example}, or {name} alone",
        )
    full = f"{match[1]}{match[2] or '.0'}{match[3] or ''}"
    return TargetRuntime(name=name, version=full)  # type: ignore[arg-type]
