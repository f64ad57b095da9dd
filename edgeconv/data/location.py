"""What a SOURCE on the command line says: `kind:location?option=value&option=value`.

`kind:` is optional where the location determines it: by the ending of a file's name, as in
`samples.npz`, by what a directory holds, or as `package.module:name`, which is a function.
A file with a colon in its name is written with a directory before it (`./a:b.npz`); a `?`
always begins the options.
"""

import contextlib
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from msgspec.structs import replace

from edgeconv.plugins import SAMPLE_SOURCES, sample_source
from edgeconv.system.store.files import absent
from edgeconv.system.store.hashes import hash_of
from edgeconv.types import Allowance, DataSource
from edgeconv.types.errors import InputRefused, UsageError

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


def parse_source(text: str) -> DataSource:
    """The SOURCE that a text names; the data need not be there. Raises `UsageError`."""
    before, mark, after = text.partition("?")
    options = _options(text, after) if mark else {}
    if "\0" in text:
        raise UsageError(f"{text!r} has a NUL in it, which no path has", hint="check the path")
    kind, location = _kind_and_location(before)
    if not location:
        raise UsageError(f"{text!r} does not name data", hint="write KIND:PLACE or a path")
    return DataSource(kind=kind, location=location, options=options, names_kind=location != before)


def located(source: DataSource) -> DataSource:
    """The SOURCE with its kind; where it names none, what the directory holds decides it.

    Raises `UsageError` if there is no directory, `InputRefused` for one of no known kind.
    """
    if source.kind:
        return source
    path = source.location
    if not Path(path).is_dir():
        raise UsageError(f"cannot tell what kind of data {path!r} is", hint=_kinds_hint(path))
    return replace(source, kind=_kind_of_directory(Path(path)))


def kind_module(source: DataSource, *, allow_code: bool) -> ModuleType:
    """The module of a SOURCE's kind. Raises `UsageError` for one that may not run its code."""
    module = sample_source(source.kind)
    if getattr(module, "RUNS_CODE", False) and not allow_code:
        raise UsageError(
            f"{source} runs code, and it was not given on the command line",
            hint="look at what it runs, and allow it: allow_code=True",
        )
    return module


def runs_code(source: DataSource) -> bool:
    """Whether reading a SOURCE runs code that it names; it need not be there."""
    # No kind of a directory does.
    return bool(source.kind) and getattr(sample_source(source.kind), "RUNS_CODE", False)


def identity(
    source: DataSource, *, allow_code: bool = False, allowance: Allowance = Allowance()
) -> str:
    """The hash of what `open_samples(source, …)` would read, without numpy.

    Equal content and options give an equal hash, wherever the file is. A kind that runs code
    runs it for this too, within `allowance`. Raises `UsageError` or `InputRefused`.
    """
    source = located(source)
    module = kind_module(source, allow_code=allow_code)
    own = {name: value for name, value in source.options.items() if name in module.OPTIONS}
    runs = {"allowance": allowance} if getattr(module, "RUNS_CODE", False) else {}
    content: str = module.identity(source.location, own, **runs)
    return hash_of(source.kind, content, source.options)


def roots_of(source: DataSource) -> tuple[Path, ...]:
    """The files, globs and directories that a SOURCE reads, whether they are there or not."""
    if source.kind in NO_FILES:
        return ()
    with contextlib.suppress(InputRefused, UsageError, OSError):
        source = located(source)
        if source.kind == "tfds":
            from edgeconv.data.kinds.tfds import find

            # Not the directory of all sets, which `dir` is.
            return (find(source.location, source.options.get("dir", "")).directory,)
    option = source.options.get(PATH_OPTIONS.get(source.kind, ""), "")
    is_path = option and source.kind != "tfds" and (source.kind, option) != ("npy", "none")
    return (Path(source.location), *([Path(option)] if is_path else []))


def refuse_absent(source: DataSource) -> None:
    """Raise `InputRefused` for a file or directory of a SOURCE that is not there."""
    for root in roots_of(source) if source.kind != "tfds" else ():
        if not (root.exists() or glob.has_magic(str(root))):
            raise absent(root)


def readable_of(source: DataSource) -> tuple[Path, ...]:
    """All that must be readable for a SOURCE, links within directories followed."""
    roots = [_fixed(root) for root in roots_of(source)]
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


def _kind_and_location(text: str) -> tuple[str, str]:
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
    from difflib import get_close_matches

    module = match[1]
    if "." in module or not get_close_matches(module, SAMPLE_SOURCES):
        return True
    return Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file()


def _kind_of_path(path: str) -> str:
    """The kind of a file by its name, "" if that does not tell it."""
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    if _TFRECORD.search(Path(path).name):
        return "tfrecord"
    return ""


def _kind_of_directory(path: Path) -> str:
    from edgeconv.data.kinds.folders import kind_of

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
