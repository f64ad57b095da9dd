"""What a field of a request says of itself, and the leaves that a request's options are.

A field that is an option is `Annotated[type, Option(...)]`; one that is a noun, whose own fields
are options, is `Annotated[noun, Within(field=Option(...), ...)]`. Command lines, the tables of
edgeconv.toml, its JSON Schema, Python's keywords and keys are all made of the leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from edgeconv.errors import UsageError
from edgeconv.requests.texts import NAMES, SANDBOX_MODE, TEXT, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Takes = Literal["flag", "whole", "number", "choice", "text"]
# As options are shown in --help. What is in the last two decides no result.
Group = Literal[
    "",
    "Input",
    "Recipes",
    "Data",
    "Quality",
    "Quantization-aware training",
    "Distribution",
    "Output",
    "Execution",
]
_INDIFFERENT: frozenset[Group] = frozenset({"Output", "Execution"})
_TYPES: dict[Any, Takes] = {bool: "flag", int: "whole", float: "number"}
# What an option takes in TOML, in words and as Python's types.
FORMS: dict[Takes, tuple[str, type | tuple[type, ...]]] = {
    "flag": ("true or false", bool),
    "whole": ("a whole number", int),
    "number": ("a number", (int, float)),
    "choice": ("a text", str),
    "text": ("a text", str),
}
NOTHING: Any = msgspec.UNSET


class Refused(UsageError):
    """A value that an option does not take: `message` goes on after the option's name."""


class MissingOption(UsageError):
    """A request without what it must have."""

    def __init__(self, leaf: Leaf) -> None:
        what = "argument" if leaf.option.is_argument else "option"
        super().__init__(f"Missing {what} {leaf.shown!r}.")
        self.leaf = leaf


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line and TOML need to know of a field.

    `name` is the long option, "" for the field's own, and `short` a letter. `text` says what its
    texts are. With `is_argument` it is an argument of the command, and of a model that is converted
    or measured `is_subject`. `is_written`: it is where something is put. `is_typed`: only a person
    may give it, and no configuration. `several`: it can be repeated.

    `make(raw, values)` is the field's value, of what was given (a tuple of `several`) and the
    values of the fields before it; `say(value)` is what `make` gives this value for. `also` is a
    second field: the value is a pair. `takes` is what is given where the field's type does not say
    that, and `shown` the default where it is another than the value's. `least` and `most` bound
    numbers, `is_above` and `is_below` without the bound itself. `words` complete a text.
    """

    help: str = ""
    name: str = ""
    short: str = ""
    metavar: str = ""
    group: Group = ""
    text: Text | None = None
    words: tuple[str, ...] = ()
    is_argument: bool = False
    is_subject: bool = False
    is_written: bool = False
    is_typed: bool = False
    is_required: bool = False
    is_shown: bool = True
    several: bool = False
    make: Callable[[Any, Any], Any] | None = None
    say: Callable[[Any], Any] | None = None
    also: str = ""
    takes: Takes | None = None
    shown: Any = NOTHING
    least: float | None = None
    is_above: bool = False
    most: float | None = None
    is_below: bool = False


class Within:
    """A field that is a noun: which of the noun's own fields are options."""

    def __init__(self, **options: Option | Within) -> None:
        self.options = MappingProxyType(options)


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a request: the way to its value, and what it takes."""

    path: tuple[str, ...]
    option: Option
    default: Any
    takes: Takes
    choices: tuple[str, ...] = ()
    text: Text
    several: bool

    @property
    def key(self) -> str:
        """The long name without dashes; of an argument, the field's name."""
        if self.option.is_argument:
            return self.path[-1]
        return self.option.name or self.path[-1].replace("_", "-")

    @property
    def shown(self) -> str:
        """The option as it is typed."""
        if self.option.is_argument:
            return self.option.metavar or self.path[-1].upper()
        return f"--{self.key}"

    @property
    def is_place(self) -> bool:
        """Whether it says where something is: what is there counts, and not where."""
        return self.text.is_place or self.option.is_written

    @property
    def decides(self) -> bool:
        """Whether a result depends on what is said here."""
        of_run = self.option.group in _INDIFFERENT
        return not (of_run or self.is_place or self.option.is_typed or self.option.is_argument)

    @property
    def is_required(self) -> bool:
        """Whether nothing can be done without it."""
        return self.default is NOTHING or self.option.is_required

    @property
    def raw_default(self) -> Any:
        """What a command line shows where nothing was given."""
        if self.option.shown is not NOTHING:
            return self.option.shown
        return None if self.default is NOTHING else self.said(self.default)

    def said(self, value: Any) -> Any:
        """What was given for a value: a text, a number, or a tuple of `several`."""
        if self.option.say is not None:
            return self.option.say(value)
        if self.several:
            return tuple(self.text.said(each) for each in value)
        is_text = value is not None and self.takes in ("text", "choice")
        return self.text.said(value) if is_text else value

    def value(self, raw: Any, values: Mapping[tuple[str, ...], Any] = MappingProxyType({})) -> Any:
        """The field's value. Raises `Refused`, or for a text as its kind does."""
        if self.several:
            each = raw if isinstance(raw, list | tuple) else (raw,)
            found: Any = tuple(self._one(item) for item in each)
        else:
            found = self._one(self.joined(raw))
        return found if self.option.make is None else self.option.make(found, values)

    def joined(self, raw: Any) -> Any:
        """A list of names as the text that would be typed; all else as it is."""
        if not (isinstance(raw, list | tuple) and self.text.is_list):
            return raw
        return ",".join(self._in_list(item) for item in raw)

    def given(self, value: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
        """The field's value, of what a caller of Python gave: what is typed, or the value."""
        items = value if isinstance(value, list | tuple) else (value,)
        if self.option.also or value is None:
            return value
        if isinstance(value, list | tuple) and self.text.is_list:
            parts = (NAMES.value(item) if isinstance(item, str) else (item,) for item in items)
            return tuple(part for each in parts for part in each)
        if all(isinstance(item, str | os.PathLike | int | float) for item in items):
            return self.value(value, values)
        return value

    def _one(self, raw: Any) -> Any:
        if isinstance(raw, os.PathLike):
            raw = os.fspath(raw)
        self.refuse(raw)
        return self.text.value(raw) if isinstance(raw, str) else raw

    def refuse(self, raw: Any) -> None:
        """Raise `Refused` for a value of another type, or out of bounds."""
        wanted, types = FORMS[self.takes]
        # bool is an int to Python, and never a number here.
        if not isinstance(raw, types) or (isinstance(raw, bool) and types is not bool):
            is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
            quoted = f'write it in quotes: "{raw}"' if types is str and is_number else ""
            raise Refused(f"must be {wanted}, not {_short(raw)}", hint=quoted)
        if self.takes == "choice" and raw not in self.choices:
            known = ", ".join(map(repr, self.choices))
            raise Refused(f"is refused: {raw!r} is not one of {known}.")
        if raw != raw:
            raise Refused("is not a number")
        if isinstance(raw, int | float) and not self._is_within(raw):
            number = float(raw) if self.takes == "number" else raw
            raise Refused(f"is refused: {number} is not in the range {self.bounds}.")

    def _is_within(self, number: float) -> bool:
        option = self.option
        low, high = option.least, option.most
        too_low = low is not None and (number <= low if option.is_above else number < low)
        too_high = high is not None and (number >= high if option.is_below else number > high)
        return not (too_low or too_high)

    @property
    def bounds(self) -> str:
        """The range of a number, as in "0<x<=1"."""
        option = self.option
        low = "" if option.least is None else f"{option.least:g}{'<' if option.is_above else '<='}"
        high = "" if option.most is None else f"{'<' if option.is_below else '<='}{option.most:g}"
        if low and not high:
            return f"x{'>' if option.is_above else '>='}{option.least:g}"
        return f"{low}x{high}"

    def _in_list(self, item: object) -> str:
        if not isinstance(item, str) or "," in item:
            raise Refused(f"must have texts without a comma in it, not {_short(item)}")
        return item


@cache
def leaves_of(request: type[msgspec.Struct]) -> tuple[Leaf, ...]:
    """The options of a request, in the order of its fields."""
    return tuple(_leaves(request, (), None, None))


def value_at(noun: Any, path: tuple[str, ...]) -> Any:
    """The value of a leaf in a request; that of the noun's default where the noun is None."""
    for name in path:
        noun = None if noun is None else getattr(noun, name)
    return noun


def _leaves(
    noun: type[msgspec.Struct],
    path: tuple[str, ...],
    options: Mapping[str, Option | Within] | None,
    base: Any,
) -> Iterator[Leaf]:
    fields = {field.name: field for field in msgspec.structs.fields(noun)}
    for name in fields if options is None else options:
        kind, marks = _unpacked(fields[name].type)
        mark = (
            options[name]
            if options
            else next((each for each in marks if isinstance(each, Option | Within)), None)
        )
        default = getattr(base, name) if base is not None else default_of(fields[name])
        if isinstance(mark, Within):
            own = noun_of(kind)
            yield from _leaves(own, (*path, name), mark.options, default or _empty(own))
        elif isinstance(mark, Option):
            if mark.also and base is not None:
                default = (default, getattr(base, mark.also))
            elif mark.also:
                default = (default, default_of(fields[mark.also]))
            yield _leaf((*path, name), mark, kind, default)


def _leaf(path: tuple[str, ...], option: Option, kind: Any, default: Any) -> Leaf:
    several = option.several
    args = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(args) == 1:
        kind = args[0]
    if several and get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    text = option.text or TEXT
    plain: Takes = "choice" if choices and text is not SANDBOX_MODE else "text"
    takes = option.takes or _TYPES.get(kind, plain)
    if takes == "text" and option.text is None:
        # What a project may not name must not come in by an oversight.
        where = ".".join(path)
        raise TypeError(f"{where}: say what its texts name, by a kind of edgeconv.requests.texts")
    return Leaf(
        path=path,
        option=option,
        default=default,
        takes=takes,
        choices=choices,
        text=text,
        several=several,
    )


def _unpacked(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(kind) is Annotated:
        first, *marks = get_args(kind)
        return first, tuple(marks)
    return kind, ()


def noun_of(kind: Any) -> type[msgspec.Struct]:
    """The noun that a field's type names, which may be None instead."""
    kind = _unpacked(kind)[0]
    found: type[msgspec.Struct] = next(
        (each for each in get_args(kind) if each is not NoneType), kind
    )
    return found


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The value of a field that is not given, `NOTHING` where it must be."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return NOTHING if field.default is msgspec.NODEFAULT else field.default


def _empty(noun: type[msgspec.Struct]) -> Any:
    fields = msgspec.structs.fields(noun)
    return None if any(default_of(field) is NOTHING for field in fields) else noun()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
