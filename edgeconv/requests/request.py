"""Requests: what a verb reads, what decides its result, and the options that its fields declare.

A field that is an option is `Annotated[type, Data(...)]`, or with another section of --help; one
that is a value with options as its fields is `Annotated[type, Within(field=Data(...), ...)]`.
Command lines, the tables of edgeconv.toml, its JSON Schema, Python's keywords and keys all come
from the leaves, one for each option.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from edgeconv.data.location import roots_of
from edgeconv.requests.texts import NAMES, PATH, SANDBOX_MODE, TEXT, Reads, TextKind
from edgeconv.system.store.hashes import hash_of
from edgeconv.types import Execution
from edgeconv.types.errors import EdgeconvError, UsageError
from edgeconv.types.words import quoted, shortened

Kind = TypeVar("Kind", bound=msgspec.Struct)
# The word by which Python lets code run that a text names.
ALLOW_CODE = "allow_code"
Takes = Literal["flag", "whole", "number", "choice", "text"]
# The sections of --help, in this order.
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
_TYPES: dict[Any, Takes] = {bool: "flag", int: "whole", float: "number"}
# What an option takes in TOML, in words and as Python's types.
_FORMS: dict[Takes, tuple[str, type | tuple[type, ...]]] = {
    "flag": ("true or false", bool),
    "whole": ("a whole number", int),
    "number": ("a number", (int, float)),
    "choice": ("a text", str),
    "text": ("a text", str),
}
NOTHING: Any = msgspec.UNSET
POSITIVE = Meta(ge=1)
ABOVE_ZERO = Meta(gt=0)
NOT_BELOW_ZERO = Meta(ge=0)
BELOW_ONE = Meta(ge=0, lt=1)


class Refused(UsageError):
    """A value that an option does not take; `message` continues after the option's name."""


class MissingOption(UsageError):
    """A request without an option that it must have."""

    def __init__(self, leaf: Leaf, *, in_python: bool = False) -> None:
        is_argument = in_python or leaf.option.is_argument
        is_about, _, _ = leaf.option.help.partition(". ")
        hint = is_about[:1].lower() + is_about[1:].rstrip(".")
        if in_python:
            several = "one or several of " if leaf.text.is_list else ""
            hint = f"give {leaf.word}={', ' if hint else ''}{several}{hint}"
        name = leaf.word if in_python else leaf.shown
        super().__init__(f"missing {'argument' if is_argument else 'option'} {name}", hint=hint)
        self.leaf = leaf


class Option(msgspec.Struct, frozen=True):
    """What a command line and TOML need to know of a field.

    `group` is its section of --help. `name` is the long option, "" for the field's own, and `short`
    a letter. `text` is the kind of its texts, and `words` complete them. An `is_argument` is
    positional; an `is_output` is where something is written; an `is_typed` is never taken from a
    configuration. One that `takes_rest` is all positional arguments of Python. `several`: it can be
    repeated.

    `make(raw)` gives the field's value from what was typed (a tuple of `several`); one that
    `depends` gets the values of the fields before it too. `to_raw(value)` is the inverse. `also` is
    a second field: the value is a pair. `takes` is the type of what is typed, where the field's
    does not tell, `bounds` its range, and `shown` the default, where it is not the value's.
    """

    group: Group = ""
    help: str = ""
    name: str = ""
    short: str = ""
    metavar: str = ""
    text: TextKind | None = None
    words: tuple[str, ...] = ()
    is_argument: bool = False
    is_output: bool = False
    is_typed: bool = False
    takes_rest: bool = False
    is_shown: bool = True
    several: bool = False
    make: Callable[..., Any] | None = None
    depends: bool = False
    to_raw: Callable[[Any], Any] | None = None
    also: str = ""
    takes: Takes | None = None
    bounds: Meta = Meta()
    shown: Any = NOTHING


Argument = partial(Option, is_argument=True)
# An option, by its section of --help.
Input = partial(Option, "Input")
Recipes = partial(Option, "Recipes")
Data = partial(Option, "Data")
Quality = partial(Option, "Quality")
ForQat = partial(Option, "Quantization-aware training")
Distributing = partial(Option, "Distribution")
Output = partial(Option, "Output")
Running = partial(Option, "Execution")


def out(text: str, kind: TextKind = PATH) -> Option:
    """-o, --out: the directory to write in."""
    return Output(text, name="out", short="o", text=kind, is_output=True)


class Parsed(msgspec.Struct, frozen=True):
    """The value of a text that a configuration has, as it is from here."""

    value: Any


class Within:
    """A field whose value has options as its fields; without `options`, its class declares them."""

    def __init__(self, **options: Option | Within) -> None:
        self.options = MappingProxyType(options)


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a request: the path to its value, and what it takes.

    `declared` is the type of the value.
    """

    path: tuple[str, ...]
    option: Option
    default: Any
    takes: Takes
    choices: tuple[str, ...] = ()
    text: TextKind
    declared: Any = Any

    @property
    def several(self) -> bool:
        """Whether it can be repeated."""
        return self.option.several

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
    def word(self) -> str:
        """The option in Python: the argument of a verb."""
        return self.key.replace("-", "_")

    @property
    def metavar(self) -> str:
        """The word for its value in --help, "" where its type tells."""
        return self.option.metavar or self.text.metavar or ("PATH" if self.is_path else "")

    @property
    def is_path(self) -> bool:
        """Whether it names a location, whose content counts and not its path."""
        return self.text.is_path or self.option.is_output

    @property
    def decides(self) -> bool:
        """Whether a result depends on it."""
        is_execution = self.option.group == "Execution"
        return not (is_execution or self.is_path or self.option.is_typed or self.option.is_argument)

    @property
    def is_required(self) -> bool:
        """Whether the request cannot be without it."""
        return self.default is NOTHING

    @property
    def raw_default(self) -> Any:
        """The default that a command line shows."""
        if self.option.shown is not NOTHING:
            return self.option.shown
        return None if self.default is NOTHING else self.raw_of(self.default)

    def raw_of(self, value: Any) -> Any:
        """What is typed for a value: a text, a number, or a tuple of `several`."""
        if self.option.to_raw is not None:
            return self.option.to_raw(value)
        if self.several:
            return tuple(self.text.text_of(each) for each in value)
        is_text = value is not None and self.takes in ("text", "choice")
        return self.text.text_of(value) if is_text else value

    def text_of(self, raw: Any) -> Any:
        """A configuration's `raw` value as TOML has it: a `Parsed` one as its text."""
        if isinstance(raw, list):
            return [self.text_of(item) for item in raw]
        return self.text.text_of(raw.value) if isinstance(raw, Parsed) else raw

    def value(self, raw: Any, values: Mapping[tuple[str, ...], Any] = MappingProxyType({})) -> Any:
        """The field's value. Raises `Refused`, or for a text as its kind does."""
        if self.several:
            items = raw if isinstance(raw, list | tuple) else (raw,)
            value: Any = tuple(map(self._item, items))
        else:
            value = self._item(self.joined(raw))
        make, further = self.option.make, (values,) if self.option.depends else ()
        return value if make is None else make(value, *further)

    def joined(self, raw: Any) -> Any:
        """A list of names as the text that would be typed; all else as it is."""
        if not (isinstance(raw, list | tuple) and self.text.is_list):
            return raw
        return ",".join(self._in_list(item) for item in raw)

    def from_python(self, value: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
        """The field's value, from a Python argument: the value itself, or what is typed for it."""
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        items = value if isinstance(value, list | tuple) else (value,)
        is_typed = all(isinstance(item, str | os.PathLike | int | float) for item in items)
        if isinstance(value, Mapping):
            value = self.parsed(dict(value))
        elif (
            self.text.is_list and self.option.make is None and not (is_typed and items == (value,))
        ):
            parts = (NAMES.parse(item) if isinstance(item, str) else (item,) for item in items)
            value = tuple(part for each in parts for part in each)
        elif is_typed:
            value = self.value(value, values)
        elif self.several:
            value = self.parsed(tuple(items))
        if self.option.also:
            return value
        try:
            return msgspec.convert(value, self.declared)
        except msgspec.ValidationError as error:
            given = quoted(dict.fromkeys(type(item).__name__ for item in items))
            form, _ = _FORMS[self.takes]
            raise Refused(f"is refused: {given} is not {form} ({error})") from error

    def parsed(self, value: Any) -> Any:
        """A field's value that Python gives, with what its texts mean; itself where it has none."""
        if isinstance(value, str):
            return self.text.load(self.text.parse(value))
        if self.several and isinstance(value, tuple) and any(isinstance(v, str) for v in value):
            return tuple(self.parsed(each) for each in value)
        if isinstance(value, dict) and any(isinstance(v, str) for v in value.values()):
            return {k: self.text.of_key(v) if isinstance(v, str) else v for k, v in value.items()}
        return value

    def _item(self, raw: Any) -> Any:
        if isinstance(raw, Parsed):
            return self.text.load(raw.value)
        if isinstance(raw, os.PathLike):
            raw = os.fspath(raw)
        self.refuse(raw)
        return self.text.load(self.text.parse(raw)) if isinstance(raw, str) else raw

    def refuse(self, raw: Any) -> None:
        """Raise `Refused` for a value of another type, or out of bounds."""
        form, types = _FORMS[self.takes]
        # bool is an int to Python, and never a number here.
        if not isinstance(raw, types) or (isinstance(raw, bool) and types is not bool):
            is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
            hint = f'write it in quotes: "{raw}"' if types is str and is_number else ""
            raise Refused(f"must be {form}, not {shortened(repr(raw), 80)}", hint=hint)
        if self.takes == "choice" and raw not in self.choices:
            raise Refused(f"is refused: {raw!r} is not one of {quoted(self.choices)}")
        if raw != raw:
            raise Refused("is not a number")
        number: Any = float(raw) if isinstance(raw, int) and self.takes == "number" else raw
        try:
            msgspec.convert(number, self.typed)
        except msgspec.ValidationError as error:
            raise Refused(f"is refused: {number} is not in the range {self._range}") from error

    def refuse_number(self, value: Any) -> None:
        """Raise `UsageError` for a field's value that is a number out of bounds."""
        raw = self.raw_of(value) if self.takes in ("whole", "number") else None
        if raw is None:
            return
        try:
            self.refuse(raw)
        except Refused as error:
            raise UsageError(f"{self.word} {error.message}") from error

    @property
    def typed(self) -> Any:
        """The type of what is typed, with its bounds."""
        kinds: dict[Takes, Any] = {takes: kind for kind, takes in _TYPES.items()}
        return Annotated[kinds.get(self.takes, str), self.option.bounds]

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The lowest and the highest number, which `gt` and `lt` of the bounds exclude."""
        bounds = self.option.bounds
        low = bounds.ge if bounds.gt is None else bounds.gt
        return low, bounds.le if bounds.lt is None else bounds.lt

    @property
    def _range(self) -> str:
        """The range of a number, as in "0<x<=1"."""
        (low, high), bounds = self.ends, self.option.bounds
        if high is None:
            return f"x{'>=' if bounds.gt is None else '>'}{low:g}"
        begin = "" if low is None else f"{low:g}{'<=' if bounds.gt is None else '<'}"
        return f"{begin}x{'<=' if bounds.lt is None else '<'}{high:g}"

    def _in_list(self, item: object) -> str:
        if not isinstance(item, str) or "," in item:
            raise Refused(f"must have texts without a comma, not {shortened(repr(item), 80)}")
        return item


@cache
def leaves_of(request: type[msgspec.Struct]) -> tuple[Leaf, ...]:
    """The options of a request, in the order of its fields."""
    return tuple(_leaves(request, (), None, None))


def value_at(request: Any, path: tuple[str, ...]) -> Any:
    """The value of a leaf in a request, None where a value on its path is None."""
    for name in path:
        request = None if request is None else getattr(request, name)
    return request


def _leaves(
    kind: type[msgspec.Struct],
    path: tuple[str, ...],
    options: Mapping[str, Option | Within] | None,
    base: Any,
) -> Iterator[Leaf]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in options or fields:
        own, marks = _unpacked(fields[name].type)
        declared = next((each for each in marks if isinstance(each, Option | Within)), None)
        mark = options[name] if options else declared
        default = getattr(base, name) if base is not None else default_of(fields[name])
        if isinstance(mark, Within):
            struct = struct_of(own)
            yield from _leaves(struct, (*path, name), mark.options, default or _empty(struct))
        elif isinstance(mark, Option):
            if mark.also:
                second = default_of(fields[mark.also]) if base is None else getattr(base, mark.also)
                default = (default, second)
            yield _leaf((*path, name), mark, own, default)


def _leaf(path: tuple[str, ...], option: Option, kind: Any, default: Any) -> Leaf:
    declared = kind
    args = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(args) == 1:
        kind = args[0]
    if option.several and get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    text = option.text or TEXT
    plain: Takes = "choice" if choices and text is not SANDBOX_MODE else "text"
    takes = option.takes or _TYPES.get(kind, plain)
    if takes == "text" and option.text is None:
        # By an oversight, a project could otherwise name more than it may.
        where = ".".join(path)
        raise TypeError(f"{where}: its `text` must be a kind of edgeconv.requests.texts")
    return Leaf(
        path=path,
        option=option,
        default=default,
        takes=takes,
        choices=choices,
        text=text,
        declared=declared,
    )


def _unpacked(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(kind) is Annotated:
        first, *marks = get_args(kind)
        return first, tuple(marks)
    return kind, ()


def struct_of(kind: Any) -> type[msgspec.Struct]:
    """The struct of a field's type, which may also allow None."""
    kind = _unpacked(kind)[0]
    struct: type[msgspec.Struct] = next((k for k in get_args(kind) if k is not NoneType), kind)
    return struct


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The default of a field, `NOTHING` where it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return NOTHING if field.default is msgspec.NODEFAULT else field.default


def _empty(kind: type[msgspec.Struct]) -> Any:
    fields = msgspec.structs.fields(kind)
    return None if any(default_of(field) is NOTHING for field in fields) else kind()


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verb is called with."""

    def inputs(self) -> Reads:
        """What is read: the paths and the SOURCEs of all options."""
        reads = [each for leaf, value in self.values() for each in _read(leaf, value)]
        return Reads(
            paths=tuple(path for each in reads for path in each.paths),
            sources=tuple(source for each in reads for source in each.sources),
        )

    def roots(self) -> tuple[Path, ...]:
        """The files, globs and directories that are read, whether they are there or not."""
        reads = self.inputs()
        return (*reads.paths, *(root for source in reads.sources for root in roots_of(source)))

    def settings(self) -> dict[str, Any]:
        """What decides the result and is not the default, as texts and numbers by option.

        Paths are not in it: what counts is their content.
        """
        return {
            leaf.key: leaf.raw_of(value)
            for leaf, value in self.values()
            if leaf.decides and value != leaf.default
        }

    def key(self) -> str:
        """The hash of what decides the result, without the content of what is read."""
        return hash_of(type(self).__name__, self.settings())

    def words(self) -> tuple[str, ...]:
        """The words of the equivalent command line, after the command's name."""
        arguments: list[str] = []
        options: list[str] = []
        for leaf, value in self.values():
            raw = leaf.raw_of(value) if value is not None else None
            if leaf.option.is_argument:
                arguments += [raw] if isinstance(raw, str) else raw or ()
            elif value != leaf.default:
                options += _words(leaf, raw)
        dashed = ["--"] if any(word.startswith("-") for word in arguments) else []
        return (*options, *dashed, *arguments) if dashed else (*arguments, *options)

    def values(self) -> Iterator[tuple[Leaf, Any]]:
        """The options, each with its value."""
        for leaf in leaves_of(type(self)):
            value = value_at(self, leaf.path)
            if leaf.option.also:
                owner = value_at(self, leaf.path[:-1])
                value = leaf.default if owner is None else (value, getattr(owner, leaf.option.also))
            is_absent = len(leaf.path) > 1 and value_at(self, leaf.path[:-1]) is None
            yield leaf, leaf.default if is_absent else value


def _words(leaf: Leaf, raw: Any) -> list[str]:
    if leaf.takes == "flag":
        return [leaf.shown] if raw else []
    items = raw if leaf.several else (raw,)
    return [word for item in items for word in (leaf.shown, str(item))]


def _read(leaf: Leaf, value: Any) -> Iterator[Reads]:
    if leaf.option.is_output or value is None:
        return
    yield from (leaf.text.reads(each) for each in (value if isinstance(value, tuple) else (value,)))


class Nothing(Request, frozen=True):
    """A request without options."""


def request_of(
    kind: type[Kind],
    raw: Mapping[str, Any],
    *,
    runs_code: bool = False,
    written: Mapping[str, Any] = MappingProxyType({}),
    blame: Callable[[str, EdgeconvError], EdgeconvError] = lambda _, error: error,
) -> Kind:
    """The request with these raw values, by the options' keys, and those `written` in a table.

    With `runs_code` the code that it names may run: it was typed, or is allowed. Raises
    `MissingOption`, and for a value of the table what `blame` makes of the error.
    """
    values: dict[tuple[str, ...], Any] = {}
    for leaf in leaves_of(kind):
        given = raw if leaf.key in raw else written
        if leaf.key in given:
            try:
                values |= spread(leaf, leaf.value(given[leaf.key], values))
            except EdgeconvError as error:
                if given is not raw:
                    raise blame(leaf.key, error) from error
                if isinstance(error, Refused):
                    raise UsageError(f"{leaf.shown} {error.message}", hint=error.hint) from error
                raise
        elif leaf.is_required:
            raise MissingOption(leaf)
    if runs_code and (path := code_path(kind)):
        values[path] = True
    return put(kind, values)


def code_path(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The field that lets a request run the code that it names, () where it names none."""
    for field in msgspec.structs.fields(kind):
        if struct_of(field.type) is Execution:
            return (field.name, ALLOW_CODE)
    return (ALLOW_CODE,) if ALLOW_CODE in kind.__struct_fields__ else ()


def spread(leaf: Leaf, value: Any) -> dict[tuple[str, ...], Any]:
    """The value of a leaf by field; a pair has two."""
    if not leaf.option.also:
        return {leaf.path: value}
    first, second = value
    return {leaf.path: first, (*leaf.path[:-1], leaf.option.also): second}


def put(kind: type[Kind], values: Mapping[tuple[str, ...], Any], base: Any = None) -> Kind:
    """A struct with these values; the others are `base`'s, or the defaults."""
    changes: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in dict.fromkeys(path[0] for path in values):
        own = {path[1:]: value for path, value in values.items() if path[0] == name}
        before = default_of(fields[name]) if base is None else getattr(base, name)
        before = own.pop((), None if before is NOTHING else before)
        changes[name] = put(struct_of(fields[name].type), own, before) if own else before
    return kind(**changes) if base is None else msgspec.structs.replace(base, **changes)
