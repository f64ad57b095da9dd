"""What a SOURCE on the command line says: `kind:place?option=value&option=value`.

`kind:` may be left out where the place is a file whose ending is the name of a kind, as
in `samples.npz`. A file with a colon in its name is written with a directory before it
(`./a:b.npz`); a `?` always begins the options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edgeconv.errors import InputRefused, UsageError
from edgeconv.plugins import SAMPLE_SOURCES, sample_source
from edgeconv.store.hashes import hash_of

_KIND = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Location:
    """A SOURCE taken apart; `options` keeps the order they were given in."""

    kind: str
    place: str
    options: dict[str, str]


def parse_location(source: str) -> Location:
    """Take a SOURCE apart. Raises `UsageError`, or `InputRefused` for a place that is no file."""
    before, mark, after = source.partition("?")
    options = _options(source, after) if mark else {}
    match = _KIND.fullmatch(before)
    if match:
        kind, place = match.groups()
        sample_source(kind)
    else:
        kind, place = _kind_of_path(before), before
    if not place:
        raise UsageError(f"{source!r} names no data", hint="write KIND:PLACE or a path")
    return Location(kind, place, options)


def identity(source: str) -> str:
    """The hash of what `load_samples(source, …)` would read, without numpy.

    Equal content and options give an equal hash, wherever the file is. Raises
    `UsageError` or `InputRefused`.
    """
    location = parse_location(source)
    module = sample_source(location.kind)
    own = {name: value for name, value in location.options.items() if name in module.OPTIONS}
    content: str = module.identity(location.place, own)
    return hash_of(location.kind, content, location.options)


def _kind_of_path(path: str) -> str:
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending in SAMPLE_SOURCES:
        return ending
    known = ", ".join(sorted(SAMPLE_SOURCES))
    hint = f"put the kind before it, as in npz:{path or 'PATH'}; known: {known}"
    if path and Path(path).is_dir():
        raise InputRefused(f"{path} is a directory, and no kind of data was named", hint=hint)
    raise UsageError(f"cannot tell what kind of data {path!r} is", hint=hint)


def _options(source: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"{part!r} in {source!r} is no option",
                hint="options look like this: data.npz?labels=y_test&image=x_test",
            )
        if name in options:
            raise UsageError(f"{source!r} gives the option {name!r} twice")
        options[name] = value
    return options
