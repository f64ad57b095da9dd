"""The texts that name a runtime: of `--runtime` and of `--target-runtime`.

A target runtime is `litert`, `litert==2.1.0` or `tflite-runtime==2.14.0`. The location in
`--runtime NAME:LOCATION` may end in options: `host?key=value&key=value`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from edgeconv.errors import UsageError, unknown_name
from edgeconv.plugins import runtime_module
from edgeconv.runtimes.interface import RuntimeChoice
from edgeconv.types import TargetRuntime

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from edgeconv.runtimes.interface import Runtime, RuntimeSettings

# What a name without a version means; tflite-runtime has no release after 2.14, and later
# releases of TensorFlow for Python cannot run Select-TF operators in its interpreter.
_DEFAULT_VERSION = {"litert": "", "tensorflow": "2.15.1", "tflite-runtime": "2.14.0"}
_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)?((?:a|b|rc|\.post)\d+)?")


def parse_choice(text: str) -> RuntimeChoice:
    """The choice in NAME, NAME==VERSION or NAME:LOCATION. Raises `UsageError`."""
    is_location = ":" in text and not text.partition(":")[0].count("==")
    name, sign, rest = (part.strip() for part in text.partition(":" if is_location else "=="))
    runtime_module(name)
    if sign and not rest:
        raise UsageError(
            f"runtime {text!r} has nothing after {sign}", hint=f"{name}, or {name}{sign}SOMETHING"
        )
    return (
        RuntimeChoice(name=name, location=rest)
        if is_location
        else RuntimeChoice(name=name, version=rest)
    )


def choice_text(choice: RuntimeChoice) -> str:
    """The text that `parse_choice` reads back as `choice`."""
    if choice.version:
        return f"{choice.name}=={choice.version}"
    return f"{choice.name}:{choice.location}" if choice.location else choice.name


def runs_here_alone(text: str) -> bool:
    """Whether a runtime runs on this machine, from edgeconv's own environments.

    Only a user may choose the others, which reach other machines or start programs. Raises as
    `parse_choice`.
    """
    return getattr(runtime_module(parse_choice(text).name), "RUNS_HERE_ALONE", False)


def files_named(text: str) -> tuple[str, ...]:
    """The files that decide which programs a runtime starts. Raises as `parse_choice`."""
    choice = parse_choice(text)
    named = getattr(runtime_module(choice.name), "files_named", None)
    return tuple(named(choice)) if named else ()


def open_runtime(
    choice: RuntimeChoice, settings: RuntimeSettings
) -> AbstractContextManager[Runtime]:
    """The runtime, opened and closed by its module. Raises as that does."""
    module = runtime_module(choice.name)
    return cast("AbstractContextManager[Runtime]", module.open_runtime(choice, settings))


def split_location(choice: RuntimeChoice, known: Collection[str]) -> tuple[str, Mapping[str, str]]:
    """The location alone, and its options. Raises `UsageError` for an option not in `known`."""
    location, mark, text = choice.location.partition("?")
    if not mark:
        return location, {}
    options = {}
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if name not in known:
            raise unknown_name(f"option of the runtime {choice.name}", name, known)
        if not equals or not value:
            raise UsageError(
                f"the runtime's option {name!r} has no value",
                hint=f"as in {choice.name}:{location}?{name}=VALUE",
            )
        options[name] = value
    return location, options


def refuse_version(choice: RuntimeChoice) -> None:
    """Raise `UsageError` for a choice with a version, of a runtime without versions."""
    if choice.version:
        raise UsageError(
            f"the runtime {choice.name} has no versions to choose from: =={choice.version}",
            hint=f"remove =={choice.version}",
        )


def parse_target_runtime(text: str) -> TargetRuntime:
    """The runtime that `text` names. Raises `UsageError` for an unknown name or a bad version."""
    name, separator, version = (part.strip() for part in text.partition("=="))
    if name not in _DEFAULT_VERSION:
        raise unknown_name("target runtime", name, _DEFAULT_VERSION)
    if not separator:
        version = _DEFAULT_VERSION[name]
    elif not (match := _VERSION.fullmatch(version)):
        raise UsageError(
            f"target runtime {text!r} has no version after ==",
            hint=f"as in {name}==2.14.0, or {name} alone",
        )
    else:
        version = f"{match[1]}{match[2] or '.0'}{match[3] or ''}"
    return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]


def runtime_text(runtime: TargetRuntime) -> str:
    """The text that `parse_target_runtime` reads back as `runtime`."""
    return f"{runtime.name}=={runtime.version}" if runtime.version else runtime.name
