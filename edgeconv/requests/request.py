"""What every request is: a frozen noun that says what it reads, and what decides its result."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv.errors import EdgeconvError, UsageError, unknown_name
from edgeconv.requests.option import (
    NOTHING,
    Leaf,
    MissingOption,
    Refused,
    default_of,
    leaves_of,
    noun_of,
    value_at,
)
from edgeconv.requests.texts import Reads
from edgeconv.store.hashes import hash_of
from edgeconv.types import Execution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Asked = TypeVar("Asked", bound=msgspec.Struct)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a verb is asked."""

    def inputs(self) -> Reads:
        """What is read: the paths and the SOURCEs of all options."""
        found = [each for leaf, value in self._values() for each in _read(leaf, value)]
        return Reads(
            places=tuple(place for each in found for place in each.places),
            sources=tuple(source for each in found for source in each.sources),
        )

    def settings(self) -> dict[str, Any]:
        """What decides the result and is not the default, as texts and numbers by option.

        Places are not in it, since what is there counts by its content.
        """
        return {
            leaf.key: leaf.said(value)
            for leaf, value in self._values()
            if leaf.decides and value != leaf.default
        }

    def key(self) -> str:
        """The hash of what decides the result, but for the content of what is read."""
        return hash_of(type(self).__name__, self.settings())

    def words(self) -> tuple[str, ...]:
        """The words of a command line that asks the same, after the command's name."""
        arguments: list[str] = []
        options: list[str] = []
        for leaf, value in self._values():
            said = leaf.said(value) if value is not None else None
            if leaf.option.is_argument:
                arguments += [said] if isinstance(said, str) else said or ()
            elif value != leaf.default:
                options += _words(leaf, said)
        dashed = ["--"] if any(word.startswith("-") for word in arguments) else []
        return (*options, *dashed, *arguments) if dashed else (*arguments, *options)

    def _values(self) -> Iterator[tuple[Leaf, Any]]:
        for leaf in leaves_of(type(self)):
            value = value_at(self, leaf.path)
            if leaf.option.also:
                noun = value_at(self, leaf.path[:-1])
                value = leaf.default if noun is None else (value, getattr(noun, leaf.option.also))
            # Of a noun that is not there, nothing was said.
            is_absent = len(leaf.path) > 1 and value_at(self, leaf.path[:-1]) is None
            yield leaf, leaf.default if is_absent else value


def _words(leaf: Leaf, said: Any) -> list[str]:
    if leaf.takes == "flag":
        return [leaf.shown] if said else []
    each = said if leaf.several else (said,)
    return [word for item in each for word in (leaf.shown, str(item))]


def _read(leaf: Leaf, value: Any) -> Iterator[Reads]:
    if leaf.option.is_written or value is None:
        return
    yield from (leaf.text.reads(each) for each in (value if isinstance(value, tuple) else (value,)))


class Nothing(Request, frozen=True):
    """Nothing is asked, or to be printed otherwise."""


def request_of(
    kind: type[Asked],
    raw: Mapping[str, Any],
    *,
    runs_code: bool = False,
    blame: Callable[[str, EdgeconvError], EdgeconvError] | None = None,
) -> Asked:
    """The request of what is typed or written, by the options' keys.

    With `runs_code` what it names may run: it was typed, or is allowed. Raises `MissingOption`
    where an option is missing, and what is wrong with the value of a key as `blame` has it.
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
        values |= _leave(kind)
    return put(kind, values)


def _leave(kind: type[msgspec.Struct]) -> dict[tuple[str, ...], bool]:
    """The fields that let a request run the code that it names."""
    for field in msgspec.structs.fields(kind):
        if noun_of(field.type) is Execution:
            return {(field.name, "allow_code"): True}
    return {("allow_code",): True} if "allow_code" in kind.__struct_fields__ else {}


def called(kind: type[Asked], positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> Asked:
    """The request of a call in Python: its fields in their order, or by name.

    A text is taken for what it says on a command line. Raises `UsageError` for what cannot be.
    """
    names = kind.__struct_fields__
    if len(positional) > len(names) or set(names[: len(positional)]) & keywords.keys():
        raise UsageError(f"{kind.__name__} was given more than its fields", hint=", ".join(names))
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    for name in given:
        if name not in names:
            raise unknown_name(f"field of {kind.__name__}", name, names)
    # None is said for what is not: the default.
    given = {name: value for name, value in given.items() if value is not None}
    leaves = {leaf.path: leaf for leaf in leaves_of(kind)}
    values: dict[tuple[str, ...], Any] = {}
    for path in sorted(((name,) for name in given), key=lambda path: names.index(path[0])):
        value, leaf = given[path[0]], leaves.get(path)
        try:
            if leaf:
                values[path] = leaf.given(value, values)
            elif isinstance(value, str | os.PathLike):
                values |= _of_argument(leaves.values(), path, value)
            else:
                values[path] = value
        except Refused as error:
            raise UsageError(f"{path[0]} {error.message}", hint=error.hint) from error
    for leaf in leaves.values():
        if leaf.is_required and leaf.path[0] not in given:
            raise MissingOption(leaf)
    try:
        plain = {path[0]: value for path, value in values.items() if len(path) == 1}
        nested = {path: value for path, value in values.items() if len(path) > 1}
        return (
            put(kind, nested, msgspec.convert(plain, kind))
            if nested
            else msgspec.convert(plain, kind)
        )
    except msgspec.ValidationError as error:
        raise UsageError(f"{kind.__name__}: {error}") from error


def _of_argument(
    leaves: Iterable[Leaf], path: tuple[str, ...], value: Any
) -> dict[tuple[str, ...], Any]:
    """What a text says in the place of a noun: the noun's argument."""
    own = [leaf for leaf in leaves if leaf.option.is_argument and leaf.path[: len(path)] == path]
    return {path: {leaf.path[-1]: leaf.value(value) for leaf in own} if own else value}


def spread(leaf: Leaf, value: Any) -> dict[tuple[str, ...], Any]:
    """The value of a leaf by field; a pair goes into two."""
    if not leaf.option.also:
        return {leaf.path: value}
    first, second = value
    return {leaf.path: first, (*leaf.path[:-1], leaf.option.also): second}


def put(kind: type[Asked], values: Mapping[tuple[str, ...], Any], base: Any = None) -> Asked:
    """A noun with these values, and those of `base`, or its defaults, for all the others."""
    changes: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in dict.fromkeys(path[0] for path in values):
        own = {path[1:]: value for path, value in values.items() if path[0] == name}
        if () in own:
            changes[name] = own[()]
            continue
        before = default_of(fields[name]) if base is None else getattr(base, name)
        nothing = before is None or before is NOTHING
        changes[name] = put(noun_of(fields[name].type), own, None if nothing else before)
    return kind(**changes) if base is None else msgspec.structs.replace(base, **changes)
