"""The text of `--runtime`, and the runtime that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from edgeconv.errors import UsageError
from edgeconv.plugins import runtime_module
from edgeconv.runtimes.interface import Choice

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edgeconv.runtimes.interface import Runtime, Settings


def parse_choice(text: str) -> Choice:
    """What NAME, NAME==VERSION or NAME:PLACE says.

    Raises `UsageError` for an unknown name, or for nothing behind the sign.
    """
    is_place = ":" in text and not text.partition(":")[0].count("==")
    name, sign, rest = (part.strip() for part in text.partition(":" if is_place else "=="))
    runtime_module(name)
    if sign and not rest:
        raise UsageError(
            f"runtime {text!r} has nothing behind {sign}", hint=f"{name}, or {name}{sign}SOMETHING"
        )
    return Choice(name=name, place=rest) if is_place else Choice(name=name, version=rest)


def choice_text(choice: Choice) -> str:
    """The text that `parse_choice` reads back as `choice`."""
    if choice.version:
        return f"{choice.name}=={choice.version}"
    return f"{choice.name}:{choice.place}" if choice.place else choice.name


def runs_here_alone(text: str) -> bool:
    """Whether a runtime runs on this machine, from edgeconv's own environments.

    Others are for a person to choose: they reach other machines, or start programs. Raises as
    `parse_choice`.
    """
    return getattr(runtime_module(parse_choice(text).name), "RUNS_HERE_ALONE", False)


def files_named(text: str) -> tuple[str, ...]:
    """The files that say what a runtime starts. Raises as `parse_choice`."""
    choice = parse_choice(text)
    named = getattr(runtime_module(choice.name), "files_named", None)
    return tuple(named(choice)) if named else ()


def open_runtime(choice: Choice, settings: Settings) -> AbstractContextManager[Runtime]:
    """The runtime, opened and let go of by its own module. Raises as that does."""
    module = runtime_module(choice.name)
    return cast("AbstractContextManager[Runtime]", module.open_runtime(choice, settings))
