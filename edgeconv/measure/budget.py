"""A budget file to a `Budget`.

As TOML: `[budget]` has the limits for every artifact, `[budget.recipe.NAME]` further
ones for one recipe, which replace the general limit of the same name.
"""

from __future__ import annotations

import math
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import msgspec

from edgeconv.errors import UsageError
from edgeconv.nouns import Budget, Limits, RecipeName

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_RECIPES: tuple[str, ...] = get_args(RecipeName)
LIMITS: dict[str, str] = {field.encode_name: field.name for field in msgspec.structs.fields(Limits)}
_FRACTIONS = frozenset({"max-accuracy-drop", "min-accuracy"})
_EXAMPLE = "for example max-accuracy-drop = 0.01"


def load_budget(path: Path) -> Budget:
    """Read a budget file.

    Raises `UsageError`, with the line, for anything in it that is not understood: a limit
    that is ignored would be a gate that is open.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise UsageError(f"the budget {path} does not exist", hint="check the path") from None
    except OSError as error:
        raise UsageError(f"the budget {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text, so it is no TOML") from error
    return _File(path, text).budget()


class _File:
    """A budget file while it is being read: knows where to point when something is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines(keepends=True)
        try:
            self._content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{path} is no valid TOML: {error}") from error

    def budget(self) -> Budget:
        """The whole budget. Raises `UsageError`."""
        for name in self._content:
            if name != "budget":
                self._unknown("table", (name,), ["budget"])
        table = self._table(("budget",), self._content.get("budget", {}))
        recipes = self._table(("budget", "recipe"), table.pop("recipe", {}))
        for name in recipes:
            if name not in _RECIPES:
                self._unknown("recipe", ("budget", "recipe", name), _RECIPES)
        budget = Budget(
            every=self._limits(("budget",), table),
            recipe={
                name: self._recipe_limits(("budget", "recipe", name), value)
                for name, value in recipes.items()
            },
        )
        if budget == Budget():
            raise UsageError(f"{self._path} sets no limit", hint=f"add one: {_EXAMPLE}")
        return budget

    def _recipe_limits(self, key: tuple[str, ...], value: object) -> Limits:
        limits = self._limits(key, self._table(key, value))
        if limits == Limits():
            self._refuse(key, f"[{'.'.join(key)}] sets no limit", f"add one: {_EXAMPLE}")
        return limits

    def _limits(self, key: tuple[str, ...], table: dict[str, Any]) -> Limits:
        values: dict[str, float] = {}
        for name, value in table.items():
            if name not in LIMITS:
                self._unknown("limit", (*key, name), [*LIMITS, *(["recipe"] * (len(key) == 1))])
            values[LIMITS[name]] = self._number((*key, name), value)
        return Limits(**values)

    def _number(self, key: tuple[str, ...], value: object) -> float:
        name = key[-1]
        # bool is an int to Python, and never a limit.
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, f"{name} must be a number, not {value!r}", _EXAMPLE)
        if not math.isfinite(value) or value < 0:
            self._refuse(key, f"{name} must be finite and not negative, not {value}", _EXAMPLE)
        if name in _FRACTIONS and value > 1:
            self._refuse(key, f"{name} is a fraction of 1, not {value}", "1% is 0.01")
        return float(value)

    def _table(self, key: tuple[str, ...], value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(key, f"{key[-1]} must be a table", f"write [{'.'.join(key)}]")
        return dict(value)

    def _unknown(self, kind: str, key: tuple[str, ...], known: Iterable[str]) -> NoReturn:
        close = get_close_matches(key[-1], list(known), n=1)
        suggestion = f"did you mean {close[0]!r}? " if close else ""
        hint = f"{suggestion}known: {', '.join(known)}"
        self._refuse(key, f"unknown {kind} {key[-1]!r}", hint)

    def _refuse(self, key: tuple[str, ...], message: str, hint: str) -> NoReturn:
        raise UsageError(f"{self._path}, line {self._line_of(key)}: {message}", hint=hint)

    def _line_of(self, key: tuple[str, ...]) -> int:
        """The line a key is on: the last of the shortest beginning of the file that has it."""
        for line in range(1, len(self._lines) + 1):
            try:
                found: Any = tomllib.loads("".join(self._lines[:line]))
            except tomllib.TOMLDecodeError:
                continue
            for name in key:
                found = found.get(name) if isinstance(found, dict) else None
            if found is not None:
                return line
        return len(self._lines)
