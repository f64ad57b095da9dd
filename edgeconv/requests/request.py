"""What every request has: what it reads, and what decides its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgeconv.data.location import roots_of
from edgeconv.requests.option import (
    NOTHING,
    Leaf,
    MissingOption,
    Refused,
    default_of,
    leaves_of,
    struct_of,
    value_at,
)
from edgeconv.requests.texts import Reads
from edgeconv.system.store.hashes import hash_of
from edgeconv.types import Execution
from edgeconv.types.errors import EdgeconvError, UsageError, unknown_name
from edgeconv.types.words import listed

Kind = TypeVar("Kind", bound=msgspec.Struct)
# The word by which Python lets code run that a text names.
ALLOW_CODE = "allow_code"
_ANY_CODE = "any_code"
# What only commands set.
_UNSHOWN = {_ANY_CODE, "by_table"}


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
    blame: Callable[[str, EdgeconvError], EdgeconvError] | None = None,
) -> Kind:
    """The request with these raw values, by the options' keys.

    With `runs_code` the code that it names may run: it was typed, or is allowed. Raises
    `MissingOption`, and for the value of a key what `blame` makes of the error.
    """
    values: dict[tuple[str, ...], Any] = {}
    for leaf in leaves_of(kind):
        if leaf.key in raw:
            try:
                values |= spread(leaf, leaf.value(raw[leaf.key], values))
            except EdgeconvError as error:
                blamed = error if blame is None else blame(leaf.key, error)
                if blamed is not error:
                    raise blamed from error
                if isinstance(error, Refused):
                    raise UsageError(f"{leaf.shown} {error.message}", hint=error.hint) from error
                raise
        elif leaf.is_required:
            raise MissingOption(leaf)
    if runs_code and (path := _code_path(kind)):
        values[path] = True
    return put(kind, values)


def _code_path(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The field that lets a request run the code that it names, () where it names none."""
    for field in msgspec.structs.fields(kind):
        if struct_of(field.type) is Execution:
            return (field.name, ALLOW_CODE)
    return (ALLOW_CODE,) if ALLOW_CODE in kind.__struct_fields__ else ()


def called(
    kind: type[Kind],
    positional: tuple[Any, ...],
    keywords: Mapping[str, Any],
    filed: Callable[[Leaf, Any, Mapping[str, Any]], Any] = lambda _leaf, value, _all: value,
) -> Kind:
    """The request of a call in Python, whose arguments are the words of the command line.

    A text means what it means there, and None is the default. Options that belong together may be
    one value, under the name of their field. `filed` puts what is in memory into files; it gets the
    option, its value and all the arguments. Raises `UsageError`.
    """
    leaves = {leaf.word: leaf for leaf in leaves_of(kind)}
    order = positional_words(kind)
    first = leaves[order[0]] if order else None
    if first and first.option.takes_rest and positional:
        is_list = isinstance(positional[0], list | tuple)
        positional = positional if is_list else (positional,)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    others = [name for name in other_words(kind) if name not in leaves]
    if len(positional) > len(order) or set(order[: len(positional)]) & keywords.keys():
        raise UsageError(
            f"too many arguments: {listed(order) or 'none'} are taken by position",
            hint="give the others by name",
        )
    arguments = {**dict(zip(order, positional, strict=False)), **keywords}
    for name in arguments:
        if name not in leaves and name not in others:
            raise unknown_name("argument", name, (*leaves, *others))
    arguments = {name: value for name, value in arguments.items() if value is not None}
    values: dict[tuple[str, ...], Any] = {}
    for name in (each for each in others if each in arguments):
        path = _allowing(kind) if name == ALLOW_CODE else (name,)
        values[path] = _plain(name, arguments[name], fields.get(name))
    for word, leaf in leaves.items():
        if word in arguments:
            try:
                value = leaf.from_python(filed(leaf, arguments[word], arguments), values)
                values |= spread(leaf, value)
            except Refused as error:
                raise UsageError(f"{word} {error.message}", hint=error.hint) from error
        elif leaf.is_required and leaf.path[:1] not in values:
            raise MissingOption(leaf, in_python=True)
    return parsed(put(kind, values))


def _plain(name: str, value: Any, field: msgspec.structs.FieldInfo | None) -> Any:
    """The value of a field that is no option. Raises `UsageError` for one of another type."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if name == "budget" and isinstance(value, Mapping):
        from edgeconv.requests.config.file import budget_of

        return budget_of(value)
    try:
        return msgspec.convert(value, bool if field is None else field.type)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from error


def positional_words(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """What Python takes by position: the arguments, and the options that must be given."""
    leaves = leaves_of(kind)
    arguments = [leaf.word for leaf in leaves if leaf.option.is_argument]
    needed = [leaf.word for leaf in leaves if leaf.is_required and not leaf.option.is_argument]
    return (*arguments, *needed)


def other_words(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Python's further arguments: values of several options, and fields that are none."""
    own = {leaf.path[0] for leaf in leaves_of(kind) if len(leaf.path) == 1}
    seconds = {leaf.option.also for leaf in leaves_of(kind)}
    names = [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.name not in own | seconds | _UNSHOWN and not _is_request(field.type)
    ]
    code = (ALLOW_CODE,) if _allowing(kind) and ALLOW_CODE not in names else ()
    return (*names, *code)


def _is_request(kind: Any) -> bool:
    """Whether a field's type is a request, whose words are the verb's too."""
    struct = struct_of(kind)
    return isinstance(struct, type) and issubclass(struct, Request)


def _allowing(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The field that Python's `allow_code` sets: of a configuration, for all that it names."""
    return (_ANY_CODE,) if _ANY_CODE in kind.__struct_fields__ else _code_path(kind)


def parsed(request: Kind) -> Kind:
    """A request that Python gives, with its texts parsed and its numbers in range.

    Raises `UsageError`.
    """
    values = {}
    for leaf in leaves_of(type(request)):
        value = value_at(request, leaf.path)
        leaf.refuse_number(value)
        if leaf.text.is_parsed and (new := leaf.parsed(value)) is not value:
            values[leaf.path] = new
    return put(type(request), values, request) if values else request


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
