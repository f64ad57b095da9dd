"""Places and SOURCEs as a configuration writes them: relative to its folder, and maybe code."""

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

    `path`: read or written. `tree`: a path, a pattern, or a directory with all that is in it.
    `address`: another machine, or a URL. `code`: a module. `program`: one that is started. `file`:
    one that a program or runtime reads what to do from, and that is allowed with it unless it is
    inside the project. `runtime` and `tracker`: such a text as a whole.
    """

    sort: Sort
    text: str


# As in gs://bucket/models, which is no path of this machine.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# With file:/home/me/x, which tools take for a URL too.
_URL = re.compile(rf"{_REMOTE.pattern}|file:", re.IGNORECASE)
# The kinds whose place is not simply a path.
NAMED_KINDS = frozenset({"function", "sklearn", "tfds"})


def place_within(place: str, folder: Path) -> str:
    """A path that starts in `folder`, as it is from here; a remote place stays as it is."""
    if not place or _REMOTE.match(place) or folder == Path():
        return place
    return str(folder / place)


def source_within(source: str, folder: Path) -> str:
    """A SOURCE whose paths start in `folder`, as it is from here. Raises `UsageError`."""
    if folder == Path():
        return source
    before, mark, after = source.partition("?")
    kind, place, said = _kind(before)
    if kind not in NAMED_KINDS or (kind == "tfds" and (folder / place).is_dir()):
        place = place_within(place, folder)
    moved = said + place + mark + _options_within(PATH_OPTIONS.get(kind, ""), after, folder)
    if moved.count("?") != source.count("?") or moved.count("&") != source.count("&"):
        raise UsageError(f"{folder} has a ? or & in it, which SOURCEs cannot have")
    return moved


def place_reach(place: str, sort: Sort = "path") -> tuple[Reach, ...]:
    """What a place names: a path, or a URL."""
    if not place:
        return ()
    return (Reach("address" if _URL.match(place) else sort, place),)


def source_reach(source: str) -> tuple[Reach, ...]:
    """What a SOURCE names: files, directories, code. Raises `UsageError` or `InputRefused`."""
    if not source:
        return ()
    before, _, after = source.partition("?")
    kind, place, _ = _kind(before)
    if kind == "function":
        return (Reach("code", place),)
    option = PATH_OPTIONS.get(kind, "")
    given = dict(part.partition("=")[::2] for part in after.split("&") if part)
    # What a directory holds may make another option the path.
    named = [text for name, text in given.items() if name == option or os.path.lexists(text)]
    # The name of a data set, which may be below `dir`, and else is where its tool puts it.
    if kind == "tfds" and not _is_path(place):
        place = str(Path(given["dir"], place)) if given.get("dir") else ""
    if kind != "sklearn":
        named.append(place)
    return tuple(reach for each in named for reach in place_reach(each, "tree"))


def _is_path(place: str) -> bool:
    return Path(place).exists() or Path(place).is_absolute() or ".." in Path(place).parts


def steps_within(steps: str, folder: Path) -> str:
    """Preprocessing steps; those in a file are the path of it."""
    return place_within(steps, folder) if steps.endswith(".toml") else steps


def _kind(text: str) -> tuple[str, str, str]:
    """The kind that a SOURCE says, its place, and the text before that; "" for a plain path."""
    if ":" not in text:
        return _kind_of_ending(text), text, ""
    location = parse_location(text)
    said = text.removesuffix(location.place)
    return location.kind, location.place, said


def _kind_of_ending(path: str) -> str:
    """As much of the kind of a plain path as tells which of its options is a path."""
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
        parts.append(f"{name}={place_within(value, folder)}" if is_path else part)
    return "&".join(parts)
