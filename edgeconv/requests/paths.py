"""Paths and SOURCEs as a configuration writes them: relative to its folder, and maybe code."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from edgeconv.data.location import PATH_OPTIONS, parse_location
from edgeconv.errors import UsageError

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


def source_within(source: str, folder: Path) -> str:
    """A SOURCE whose paths start in `folder`, as it is from here. Raises `UsageError`."""
    if folder == Path():
        return source
    before, mark, after = source.partition("?")
    kind, path, prefix = _kind(before)
    if kind not in NAMED_KINDS or (kind == "tfds" and (folder / path).is_dir()):
        path = path_within(path, folder)
    moved = prefix + path + mark + _options_within(PATH_OPTIONS.get(kind, ""), after, folder)
    if moved.count("?") != source.count("?") or moved.count("&") != source.count("&"):
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


def source_reach(source: str) -> tuple[Reach, ...]:
    """What a SOURCE names: files, directories, code. Raises `UsageError` or `InputRefused`."""
    if not source:
        return ()
    before, _, after = source.partition("?")
    kind, path, _ = _kind(before)
    if kind == "function":
        return (Reach("code", path),)
    option = PATH_OPTIONS.get(kind, "")
    options = dict(part.partition("=")[::2] for part in after.split("&") if part)
    # What a directory holds may make another option the path.
    paths = [text for name, text in options.items() if name == option or os.path.lexists(text)]
    # The name of a data set, which may be below `dir`, or else is where its tool puts it.
    if kind == "tfds" and not _is_path(path):
        path = str(Path(options["dir"], path)) if options.get("dir") else ""
    if kind != "sklearn":
        paths.append(path)
    return tuple(reach for each in paths for reach in tree_reach(each))


def _is_path(text: str) -> bool:
    return Path(text).exists() or Path(text).is_absolute() or ".." in Path(text).parts


def steps_within(steps: str, folder: Path) -> str:
    """Preprocessing steps; those in a file are its path."""
    return path_within(steps, folder) if steps.endswith(".toml") else steps


def _kind(text: str) -> tuple[str, str, str]:
    """The kind of a SOURCE, its location, and the text before that, "" for a plain path."""
    if ":" not in text:
        return _kind_of_ending(text), text, ""
    location = parse_location(text)
    return location.kind, location.location, text.removesuffix(location.location)


def _kind_of_ending(path: str) -> str:
    """What of the kind of a plain path decides which of its options is a path."""
    ending = Path(path).suffix.lower()
    if "tfrecord" in Path(path).name:
        return "tfrecord"
    if ending in (".npz", ".csv", ".tsv", ".parquet"):
        return ""
    # A directory of sounds has `classes`, as one of images does.
    return "npy" if ending == ".npy" else "images"


def _options_within(option: str, text: str, folder: Path) -> str:
    parts = []
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        is_path = bool(equals) and name == option
        parts.append(f"{name}={path_within(value, folder)}" if is_path else part)
    return "&".join(parts)
