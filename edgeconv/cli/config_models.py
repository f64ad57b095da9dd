"""Which model of a configuration a command is about, by the paths that are typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.config import Config

_SUBJECTS = ("model", "models", "artifact")


def subjects(command: click.Command, typed: dict[str, Any]) -> list[Path]:
    """What the command is about: the values of its arguments that are models."""
    found: list[str] = []
    for argument in command.params:
        if isinstance(argument, click.Argument) and argument.name in _SUBJECTS:
            value = typed.get(argument.name)
            found += [value] if isinstance(value, str) else ()
            found += value if isinstance(value, list | tuple) else ()
    return [Path(place).resolve() for place in found if "\0" not in place]


def model_of(config: Config, places: Sequence[Path]) -> str:
    """The one model that all places belong to; "" where there is none. Raises `UsageError`."""
    found = {_model_at(config, place) for place in places}
    return found.pop() if len(found) == 1 else ""


def _model_at(config: Config, place: Path) -> str:
    """The model that a path is the source of, or that alone publishes where it is.

    Raises `UsageError` where two models have the same source.
    """
    from edgeconv.errors import UsageError

    sources = [name for name, one in config.models.items() if place == Path(one.source).resolve()]
    if len(sources) > 1:
        raise UsageError(
            f"{place} is the source of several models of {config.path}: {', '.join(sources)}",
            hint="`edgeconv check` takes each with its own settings",
        )
    found = sources or [name for name in config.models if _published(config, name, place)]
    return found[0] if len(found) == 1 else ""


def _published(config: Config, model: str, place: Path) -> bool:
    """Whether a path is the directory that the artifacts of the model are in, or in it."""
    out = config.models[model].tables.get("convert", {}).get("out", f"{model}.tflites")
    if not isinstance(out, str) or "\0" in out:
        return False
    directory = (config.folder / out).resolve()
    # `edgeconv check` gives each of several models a folder in a general one.
    return any(each == place or each in place.parents for each in (directory, directory / model))
