"""Paths and SOURCEs as a configuration writes them: relative to its folder, and maybe code."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from edgeconv.data.location import PATH_OPTIONS
from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from edgeconv.types import DataSource

Sort = Literal["path", "tree", "address", "code", "program", "file", "runtime", "tracker"]


class Reach(NamedTuple):
    """One thing that a value names, as it is from the current directory.

    `path`: read or written. `tree`: a path, a pattern, or a directory with its content.
    `address`: another machine, or a URL. `code`: a module. `program`: one that is started. `file`:
    read by a program or runtime that is allowed, and allowed with it unless it is in the project.
    `runtime` and `tracker`: such a text as a whole.
    """

    sort: Sort
    text: str


# Such as gs://bucket/models, which is not a path of this machine.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# With file:/home/me/x, which tools take for a URL too.
_URL = re.compile(rf"{_REMOTE.pattern}|file:", re.IGNORECASE)
# The kinds whose location is not simply a path.
NAMED_KINDS = frozenset({"function", "sklearn", "tfds"})


def path_within(path: str, folder: Path) -> str:
    """A path that starts in `folder`, as it is from here; a remote one stays as it is."""
    if not path or _REMOTE.match(path) or folder == Path():
        return path
    return str(folder / path)


def source_within(source: DataSource, folder: Path) -> DataSource:
    """A SOURCE whose paths start in `folder`, as it is from here. Raises `UsageError`."""
    if folder == Path():
        return source
    location, kind = source.location, source.kind
    if kind not in NAMED_KINDS or (kind == "tfds" and (folder / location).is_dir()):
        location = path_within(location, folder)
    option = _path_option(source)
    options = {
        name: path_within(text, folder) if name == option else text
        for name, text in source.options.items()
    }
    moved = replace(source, location=location, options=options)
    if moved != source and {"?", "&"} & {*str(folder)}:
        raise UsageError(f"{folder} has a ? or & in it, which SOURCEs cannot have")
    return moved


def path_reach(path: str, sort: Sort = "path") -> tuple[Reach, ...]:
    """What a path names: a file or directory, or a URL."""
    if not path:
        return ()
    return (Reach("address" if _URL.match(path) else sort, path),)


def tree_reach(path: str) -> tuple[Reach, ...]:
    """What a path names with all that is below it."""
    return path_reach(path, "tree")


def source_reach(source: DataSource) -> tuple[Reach, ...]:
    """What a SOURCE names: files, directories, code."""
    kind, path = source.kind, source.location
    if kind == "function":
        return (Reach("code", path),)
    option, options = _path_option(source), source.options
    # What a directory holds may make another option the path.
    paths = [text for name, text in options.items() if name == option or os.path.lexists(text)]
    # The name of a data set, which may be below `dir`, or else is where its tool puts it.
    if kind == "tfds" and not _is_path(path):
        path = str(Path(options["dir"], path)) if options.get("dir") else ""
    if kind != "sklearn":
        paths.append(path)
    return tuple(reach for each in paths for reach in tree_reach(each))


def _path_option(source: DataSource) -> str:
    """The option of a SOURCE that is a path; a directory of sounds has that of one of images."""
    return PATH_OPTIONS.get(source.kind or "images", "")


def _is_path(text: str) -> bool:
    return Path(text).exists() or Path(text).is_absolute() or ".." in Path(text).parts
