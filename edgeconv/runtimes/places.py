"""PLACE of `--runtime NAME:PLACE`, which may end in options: `host?key=value&key=value`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from edgeconv.runtimes.interface import Choice


def split_place(choice: Choice, known: Collection[str]) -> tuple[str, Mapping[str, str]]:
    """The place alone, and its options. Raises `UsageError` for an option that is not `known`."""
    place, mark, text = choice.place.partition("?")
    if not mark:
        return place, {}
    options = {}
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if name not in known:
            raise unknown_name(f"option of the runtime {choice.name}", name, known)
        if not equals or not value:
            raise UsageError(
                f"the runtime's option {name!r} has no value",
                hint=f"as in {choice.name}:{place}?{name}=VALUE",
            )
        options[name] = value
    return place, options


def refuse_version(choice: Choice) -> None:
    """Raise `UsageError` where a version is asked for that cannot be chosen."""
    if choice.version:
        raise UsageError(
            f"the runtime {choice.name} has no versions to choose from, and {choice.version!r} "
            "was asked for",
            hint=f"--runtime {choice.name}, without ==",
        )
