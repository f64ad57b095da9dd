"""The recipes of a sweep: the name of one of `convert`, or `tune(max-drop=0.005)`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.errors import UsageError
from edgeconv.requests.option import Refused, leaves_of
from edgeconv.requests.tune import TuneRequest
from edgeconv.store.toml_text import shown
from edgeconv.types import EVERY_RECIPE

if TYPE_CHECKING:
    from edgeconv.requests.option import Leaf
    from edgeconv.store.toml_file import TomlFile

_TUNE = re.compile(r"tune\s*\((.*)\)")
_FORM = "as in tune(max-drop=0.005, objective=size)"


class SweepRecipe(msgspec.Struct, frozen=True):
    """A recipe by its text; `options` are those of `tune` by their keys, None for `convert`."""

    text: str
    options: dict[str, Any] | None = None


def parse_recipe(text: str, file: TomlFile) -> SweepRecipe:
    """The recipe that a text names. Raises `UsageError`, with the line."""
    call = _TUNE.fullmatch(text.strip())
    if call is None:
        if text not in EVERY_RECIPE:
            hint = f"{', '.join(EVERY_RECIPE)}, all, or a search, {_FORM}"
            raise file.error(("recipes",), f"unknown recipe {shown(text)}", hint)
        return SweepRecipe(text)
    options: dict[str, Any] = {}
    known = {leaf.key: leaf for leaf in leaves_of(TuneRequest) if leaf.decides and not leaf.several}
    for part in filter(None, (each.strip() for each in call[1].split(","))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (equals and value) or name not in known or name in options:
            hint = f"{_FORM}; its options are {', '.join(known)}"
            raise file.error(("recipes",), f"{shown(text)}: {shown(part)} is not an option", hint)
        options[name] = _value(known[name], value, text, file)
    if "max-drop" not in options:
        raise file.error(("recipes",), f"{shown(text)} has no max-drop", _FORM)
    words = ", ".join(f"{name}={options[name]}" for name in sorted(options))
    return SweepRecipe(f"tune({words})", options)


def _value(leaf: Leaf, text: str, recipe: str, file: TomlFile) -> Any:
    try:
        numbers: dict[str, Any] = {"number": float, "whole": int}
        raw = numbers.get(leaf.takes, str)(text)
        leaf.value(raw)
    except ValueError:
        problem, hint = f"must be a number, not {shown(text)}", _FORM
    except Refused as error:
        problem, hint = error.message, error.hint or _FORM
    except UsageError as error:
        problem, hint = f"is not understood: {error.message}", error.hint
    else:
        return raw
    raise file.error(("recipes",), f"{leaf.key} of {shown(recipe)} {problem}", hint)
