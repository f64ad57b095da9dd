"""The values of a configuration as click takes them, each checked against its option."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from edgeconv.cli.values import Text, UserOption, text_of
from edgeconv.config.reach import NotAllowed, refusal
from edgeconv.config.toml_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.config import Config
    from edgeconv.config.reach import Granted, Refusal
    from edgeconv.config.toml_text import Key
    from edgeconv.errors import UsageError
    from edgeconv.requests.places import Reach


def default_map(
    config: Config, command: click.Command, *, model: str = "", granted: Granted | None
) -> dict[str, Any]:
    """The values of a command's table by parameter name, as click takes them.

    Raises `UsageError`, with file and line, for a value that the option does not take, and
    `NotAllowed` for what the project may not name and is not `granted`; with None, only to be
    shown, nothing is refused so.
    """
    name = command.name or ""
    tables = config.models[model].tables if model else config.tables
    options = options_of(command)
    values = {}
    for key, raw in tables.get(name, {}).items():
        where = _Value(config, config.key(name, key, model=model), granted)
        option = options[key]
        values[option.name or ""] = where.value(option, raw)
    return values


def refused_values(
    config: Config, command: click.Command, *, model: str = "", granted: Granted
) -> dict[str, NotAllowed]:
    """What `default_map` would refuse of a command's table as not allowed, by key."""
    name = command.name or ""
    tables = config.models[model].tables if model else config.tables
    options = options_of(command)
    found = {}
    for key, raw in tables.get(name, {}).items():
        try:
            where = _Value(config, config.key(name, key, model=model), granted)
            where.value(options[key], raw)
        except NotAllowed as error:
            found[key] = error
    return found


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that a configuration may give, by their keys."""
    found = {}
    for option in command.params:
        key = key_of(option)
        if isinstance(option, click.Option) and key and not isinstance(option, UserOption):
            found[key] = option
    return found


def key_of(option: click.Parameter) -> str:
    """The long name without dashes, "" for what has none."""
    return next((name[2:] for name in option.opts if name.startswith("--")), "")


class _Value:
    """A value's place in the configuration, where it is made ready for click."""

    def __init__(self, config: Config, key: Key, granted: Granted | None) -> None:
        self._config = config
        self._key = key
        self._granted = granted

    def value(self, option: click.Option, raw: Any) -> Any:
        """The value as click takes it. Raises `UsageError`."""
        kind = text_of(option.type)
        if option.multiple:
            each = raw if isinstance(raw, list) else [raw]
            return [self._one(option, kind, item) for item in each]
        if isinstance(raw, list) and kind.is_list:
            return self._one(option, kind, ",".join(self._text(item) for item in raw))
        return self._one(option, kind, raw)

    def _one(self, option: click.Option, kind: Text, raw: Any) -> Any:
        wanted, takes = form_of(option)
        # bool is an int to Python, and never a number here.
        if not isinstance(raw, takes) or (isinstance(raw, bool) and takes is not bool):
            raise self._error(f"must be {wanted}, not {shown(raw)}", _quoted(takes, raw))
        if isinstance(raw, float) and math.isnan(raw):
            raise self._error("is not a number")
        if not isinstance(raw, str):
            return self._accepted(option, raw)
        return self._accepted(option, self._as_typed(kind, raw))

    def _as_typed(self, kind: Text, raw: str) -> str:
        from edgeconv.errors import InputRefused, UsageError

        if "\0" in raw:
            raise self._error(f"has a character that no text may have: {shown(raw)}")
        try:
            text = kind.within(raw, self._config.folder)
            refused = self._refusal(kind.reaches(text))
        except (UsageError, InputRefused) as error:
            raise self._error(f"is not understood: {error.message}", error.hint) from error
        except OSError as error:
            raise self._error(f"is not understood: {error.strerror}") from error
        if refused:
            where = self._error(refused.message)
            raise NotAllowed(where.message, hint=refused.hint, place=where.place)
        return text

    def _refusal(self, reaches: Iterable[Reach]) -> Refusal | None:
        if self._granted is None:
            return None
        found = (refusal(each, self._config.path, self._granted) for each in reaches)
        return next(filter(None, found), None)

    def _accepted(self, option: click.Option, value: Any) -> Any:
        try:
            option.type.convert(value, option, None)
        except click.BadParameter as error:
            raise self._error(f"is refused: {error.message}") from error
        return value

    def _text(self, item: object) -> str:
        if not isinstance(item, str) or "," in item:
            raise self._error(f"must have texts without a comma in it, not {shown(item)}")
        return item

    def _error(self, message: str, hint: str = "") -> UsageError:
        table = self._config.written.header(*self._key[:-1])
        return self._config.written.error(self._key, f"{self._key[-1]} of {table} {message}", hint)


def form_of(option: click.Option) -> tuple[str, type | tuple[type, ...]]:
    """What an option takes in TOML, in words and as Python's types."""
    if option.is_flag:
        return "true or false", bool
    if isinstance(option.type, click.types.IntParamType):
        return "a whole number", int
    if isinstance(option.type, click.types.FloatParamType):
        return "a number", (int, float)
    return "a text", str


def _quoted(takes: object, raw: object) -> str:
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return f'write it in quotes: "{raw}"' if takes is str and is_number else ""
