"""What every request has: what it reads, and what decides its result."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

Kind = TypeVar("Kind", bound=msgspec.Struct)


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
    if runs_code:
        values |= _allow_code(kind)
    return put(kind, values)


def _allow_code(kind: type[msgspec.Struct]) -> dict[tuple[str, ...], bool]:
    """The field that lets a request run the code that it names."""
    for field in msgspec.structs.fields(kind):
        if struct_of(field.type) is Execution:
            return {(field.name, "allow_code"): True}
    return {("allow_code",): True} if "allow_code" in kind.__struct_fields__ else {}


def called(kind: type[Kind], positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> Kind:
    """The request of a call in Python: its fields in their order, or by name.

    A text means what it means on a command line. Raises `UsageError`.
    """
    names = kind.__struct_fields__
    leaves = {leaf.path: leaf for leaf in leaves_of(kind)}
    first = leaves.get((names[0],)) if names else None
    if first and first.option.takes_rest and positional:
        is_list = isinstance(positional[0], list | tuple)
        positional = positional if is_list else (positional,)
    if len(positional) > len(names) or set(names[: len(positional)]) & keywords.keys():
        raise UsageError(
            f"{kind.__name__}: too many arguments", hint=f"its fields are {listed(names)}"
        )
    arguments = {**dict(zip(names, positional, strict=False)), **keywords}
    for name in arguments:
        if name not in names:
            raise unknown_name(f"field of {kind.__name__}", name, names)
    # None means the default.
    arguments = {name: value for name, value in arguments.items() if value is not None}
    values: dict[tuple[str, ...], Any] = {}
    for path in sorted(((name,) for name in arguments), key=lambda path: names.index(path[0])):
        value, leaf = arguments[path[0]], leaves.get(path)
        try:
            if leaf:
                values[path] = leaf.from_python(value, values)
            elif isinstance(value, str | os.PathLike):
                values |= _of_argument(leaves.values(), path, value)
            else:
                values[path] = value
        except Refused as error:
            raise UsageError(f"{path[0]} {error.message}", hint=error.hint) from error
    for leaf in leaves.values():
        if leaf.is_required and leaf.path[0] not in arguments:
            raise MissingOption(leaf)
    try:
        plain = {path[0]: value for path, value in values.items() if len(path) == 1}
        nested = {path: value for path, value in values.items() if len(path) > 1}
        request = msgspec.convert(plain, kind)
        return parsed(put(kind, nested, request) if nested else request)
    except msgspec.ValidationError as error:
        raise UsageError(f"{kind.__name__}: {error}") from error


def parsed(request: Kind) -> Kind:
    """A request that Python gives, with what the texts in it mean. Raises `UsageError`."""
    values = {}
    for leaf in leaves_of(type(request)):
        value = value_at(request, leaf.path)
        if leaf.text.is_parsed and (new := leaf.parsed(value)) is not value:
            values[leaf.path] = new
    return put(type(request), values, request) if values else request


def _of_argument(
    leaves: Iterable[Leaf], path: tuple[str, ...], value: Any
) -> dict[tuple[str, ...], Any]:
    """The values of a text that is passed for a struct: the struct's argument."""
    own = [leaf for leaf in leaves if leaf.option.is_argument and leaf.path[: len(path)] == path]
    return {path: {leaf.path[-1]: leaf.value(value) for leaf in own} if own else value}


def spread(leaf: Leaf, value: Any) -> dict[tuple[str, ...], Any]:
    """The value of a leaf by field; a pair has two."""
    if not leaf.option.also:
        return {leaf.path: value}
    first, second = value
    return {leaf.path: first, (*leaf.path[:-1], leaf.option.also): second}


def put(kind: type[Kind], values: Mapping[tuple[str, ...], Any], base: Any = None) -> Kind:
    """A struct with these values; all others are those of `base`, or the defaults."""
    changes: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in dict.fromkeys(path[0] for path in values):
        own = {path[1:]: value for path, value in values.items() if path[0] == name}
        if () in own:
            changes[name] = own[()]
            continue
        before = default_of(fields[name]) if base is None else getattr(base, name)
        before = None if before is NOTHING else before
        changes[name] = put(struct_of(fields[name].type), own, before)
    return kind(**changes) if base is None else msgspec.structs.replace(base, **changes)
