"""What a SOURCE on the command line says: `kind:location?option=value&option=value`.

`kind:` is optional where the location determines it: by the ending of a file's name, as in
`samples.npz`, by what a directory holds, or as `package.module:name`, which is a function.
A file with a colon in its name is written with a directory before it (`./a:b.npz`); a `?`
always begins the options.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.data.kinds.folders import kind_of
from edgeconv.errors import InputRefused, UsageError
from edgeconv.plugins import SAMPLE_SOURCES, sample_source
from edgeconv.store.hashes import hash_of
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_KIND = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(.*)", re.DOTALL)
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_FUNCTION = re.compile(f"({_DOTTED}):{_DOTTED}")
_ENDINGS = {"npy": "npy", "npz": "npz", "csv": "csv", "tsv": "csv", "parquet": "parquet"}
# The options of kinds that are paths.
PATH_OPTIONS = {
    "images": "classes",
    "npy": "labels",
    "tfds": "dir",
    "tfrecord": "spec",
    "wavs": "classes",
}
# They read no file of the user, or unknown ones.
NO_FILES = frozenset({"function", "sklearn"})
# Also of shards, compressed files and globs: x.tfrecord-00000-of-00002, x.tfrecord.gz.
_TFRECORD = re.compile(r"\.tfrecords?(?:$|[-.*?\[])", re.IGNORECASE)


@dataclass(frozen=True)
class Location:
    """A SOURCE in its parts; `options` are in their order."""

    kind: str
    location: str
    options: dict[str, str]


def parse_location(source: str) -> Location:
    """Parse a SOURCE. Raises `UsageError`, or `InputRefused` for a location that is not a file."""
    before, mark, after = source.partition("?")
    options = _options(source, after) if mark else {}
    if "\0" in source:
        raise UsageError(f"{source!r} has a NUL in it, which no path has", hint="check the path")
    kind, location = _kind_and_place(before)
    if not location:
        raise UsageError(f"{source!r} does not name data", hint="write KIND:PLACE or a path")
    return Location(kind, location, options)


def kind_module(source: str, kind: str, *, allow_code: bool) -> ModuleType:
    """The module of a kind. Raises `UsageError` for one that may not run its code."""
    module = sample_source(kind)
    if getattr(module, "RUNS_CODE", False) and not allow_code:
        raise UsageError(
            f"{source} runs code, and it was not given on the command line",
            hint="look at what it runs, and allow it: Execution(allow_code=True)",
        )
    return module


def runs_code(source: str) -> bool:
    """Whether reading a SOURCE runs code that it names; it need not be there.

    Raises `UsageError` for a kind that is none.
    """
    before = source.partition("?")[0]
    # A plain path names none.
    if ":" not in before:
        return False
    return getattr(sample_source(parse_location(before).kind), "RUNS_CODE", False)


def identity(source: str, *, allow_code: bool = False, allowance: Allowance = Allowance()) -> str:
    """The hash of what `load_samples(source, …)` would read, without numpy.

    Equal content and options give an equal hash, wherever the file is. A kind that runs code
    runs it for this too, within `allowance`. Raises `UsageError` or `InputRefused`.
    """
    parsed = parse_location(source)
    module = kind_module(source, parsed.kind, allow_code=allow_code)
    own = {name: value for name, value in parsed.options.items() if name in module.OPTIONS}
    runs = {"allowance": allowance} if getattr(module, "RUNS_CODE", False) else {}
    content: str = module.identity(parsed.location, own, **runs)
    return hash_of(parsed.kind, content, parsed.options)


def roots_of(parsed: Location) -> tuple[Path, ...]:
    """The files, globs and directories that a SOURCE reads, whether they are there or not."""
    if parsed.kind in NO_FILES:
        return ()
    option = parsed.options.get(PATH_OPTIONS.get(parsed.kind, ""), "")
    if parsed.kind == "tfds":
        from edgeconv.data.tfds_layout import find

        try:
            # Not the directory of all sets, which `dir` is.
            return (find(parsed.location, option).directory,)
        except (InputRefused, UsageError):
            return (Path(parsed.location),)
    return (Path(parsed.location), *([Path(option)] if option else []))


def readable_of(parsed: Location) -> tuple[Path, ...]:
    """All that must be readable for a SOURCE, links within directories followed."""
    roots = [_fixed(root) for root in roots_of(parsed)]
    return tuple(dict.fromkeys([*roots, *(link for root in roots for link in _links(root))]))


def _fixed(root: Path) -> Path:
    """A glob's directory, where it is one; other paths as they are."""
    if root.exists() or not glob.has_magic(str(root)):
        return root
    return next(parent for parent in root.parents if not glob.has_magic(str(parent)))


def _links(root: Path) -> Iterator[Path]:
    """Where the links in a directory, two levels deep as classes are, lead to."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                yield path.resolve()
            if entry.is_dir():
                with contextlib.suppress(OSError), os.scandir(path) as inside:
                    yield from (Path(each.path).resolve() for each in inside if each.is_symlink())


def _kind_and_place(text: str) -> tuple[str, str]:
    match = _KIND.fullmatch(text)
    if match and match[1] in SAMPLE_SOURCES:
        return match[1], match[2]
    if _is_function(text):
        return "function", text
    if match:
        sample_source(match[1])
    return _kind_of_path(text), text


def _is_function(text: str) -> bool:
    """Whether it is module:function, and not the name of a kind that is misspelt."""
    match = _FUNCTION.fullmatch(text)
    if not match:
        return False
    module = match[1]
    if "." in module or not get_close_matches(module, SAMPLE_SOURCES):
        return True
    return Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file()


def _kind_of_path(path: str) -> str:
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if _TFRECORD.search(Path(path).name):
        return "tfrecord"
    if path and Path(path).is_dir():
        return _kind_of_directory(Path(path))
    raise UsageError(f"cannot tell what kind of data {path!r} is", hint=_kinds_hint(path))


def _kind_of_directory(path: Path) -> str:
    if (path / "dataset_info.json").is_file():
        return "tfds"
    if any(path.glob("*.parquet")):
        return "parquet"
    if kind := kind_of(path):
        return kind
    raise InputRefused(
        f"{path} is a directory, and no kind of data was named", hint=_kinds_hint(str(path))
    )


def _kinds_hint(path: str) -> str:
    known = ", ".join(sorted(SAMPLE_SOURCES))
    return f"put the kind before it, as in npz:{path or 'PATH'}; known: {known}"


def _options(source: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"{part!r} in {source!r} is not an option",
                hint="options look like this: data.npz?labels=y_test&image=x_test",
            )
        if name in options:
            raise UsageError(f"{source!r} gives the option {name!r} twice")
        options[name] = value
    return options
