"""Directories with one file a sample, for the kinds that read them; itself no kind.

`labels=folder`, the default if there are sub-directories: each is a class, and they are
numbered from 0 in the order of their names. `labels=prefix` takes the text before the first
`_` of a file's name as its class, `labels=none` gives no labels. `classes=FILE` has one class
name a line, and the classes are numbered in that order.

Hidden files and those that file managers leave behind are ignored. Any other file that does not
belong there is an error that names it.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened, sha256_of
from edgeconv.system.store.files import absent
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

if TYPE_CHECKING:
    import numpy as np

OPTIONS = frozenset({"labels", "classes"})

_LEFT_BEHIND = {"thumbs.db", "desktop.ini"}
_LARGEST_CLASSES_BYTES = 16 << 20
_SHOWN = 5
_KINDS = {**dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp"), "images"), ".wav": "wavs"}
# How many class directories are listed to find the kind of a directory.
_LOOKED_AT = 3


@dataclass(frozen=True)
class Listing:
    """The files of a directory in the order of their names, and the class of each, if any."""

    files: tuple[Path, ...]
    labels: tuple[int, ...] | None
    class_names: tuple[str, ...]

    def arrays(self, decode: Callable[[Path], np.ndarray[Any, Any]]) -> Arrays:
        """The data set: a column without a name whose items `decode` reads, and the labels."""
        import numpy as np

        labels = None if self.labels is None else np.array(self.labels, np.int64)
        return Arrays({"": _Files(self.files, decode)}, labels, class_names=self.class_names)


@dataclass(frozen=True)
class _Files:
    """A column with a file for each sample."""

    paths: tuple[Path, ...]
    decode: Callable[[Path], np.ndarray[Any, Any]]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        return self.decode(self.paths[index])


def kind_of(directory: Path) -> str | None:
    """The kind of data that a directory's files, or its first classes', are called after.

    None if they are of neither kind, or of both.
    """
    try:
        paths = sorted(directory.iterdir())
        inside = [path for path in paths if path.is_dir()][:_LOOKED_AT]
        for path in inside:
            paths += path.iterdir()
    except OSError:
        return None
    kinds = {_KINDS.get(path.suffix.lower(), "") for path in paths} - {""}
    return kinds.pop() if len(kinds) == 1 else None


def listed(location: str, options: Mapping[str, str], ways: tuple[str, ...]) -> Listing:
    """The files at `location` and their classes; `ways` are the values that `labels` may have.

    Reads none of the files. Raises `UsageError` for a wrong option, and `InputRefused` for a
    directory that is missing, empty, or laid out in another way.
    """
    way = options.get("labels", "")
    if way and way not in ways:
        raise unknown_name("value of the option labels", way, ways)
    classes = Path(options["classes"]) if "classes" in options else None
    files, directories = _content(Path(location), classes)
    _check_layout(location, files, directories, way)
    files = files or [file for directory in directories for file in _files_of(directory)]
    way = way or ("folder" if directories else "none")
    if way == "none":
        if classes:
            raise UsageError(
                f"{location}: classes={classes} is given, but there are no labels",
                hint=f"remove it, or say where the labels are: labels={ways[0]}",
            )
        return Listing(tuple(files), None, ())
    names = [_class_of(file, way) for file in files]
    order = _class_order(classes, set(names)) if classes else sorted(set(names))
    number = {name: index for index, name in enumerate(order)}
    return Listing(tuple(files), tuple(number[name] for name in names), tuple(order))


def identity(location: str, options: Mapping[str, str], ways: tuple[str, ...]) -> str:
    """The hash of the files' names and bytes and of their classes. Raises as `listed` does."""
    listing = listed(location, options, ways)
    # A name is bytes to the system, and not always UTF-8.
    names = [os.fsencode(file.relative_to(location)).hex() for file in listing.files]
    contents = [sha256_of(file) for file in listing.files]
    return hash_of(names, contents, listing.labels, listing.class_names)


def refuse_names(location: str, array_names: frozenset[str] | None) -> None:
    """Raise `UsageError` for names of arrays: the only one has no name."""
    if array_names is not None:
        raise UsageError(
            f"{location} has one file per sample, so no array can be chosen by name",
            hint="remove the renaming: the files go to the model's only input",
        )


def some(paths: list[Path]) -> str:
    """A few of the paths, and how many there are where those are not all."""
    shown = ", ".join(str(path) for path in paths[:_SHOWN])
    return shown if len(paths) <= _SHOWN else f"{shown} … ({len(paths):,} files)"


def _check_layout(location: str, files: list[Path], directories: list[Path], way: str) -> None:
    if not files and not directories:
        raise InputRefused(f"{location} has no files in it", hint="check the path")
    if files and directories:
        raise InputRefused(
            f"{location} has files next to its class directories: {some(files)}",
            hint="move them into a class directory, or elsewhere",
        )
    if way == "folder" and not directories:
        raise InputRefused(
            f"{location} has no class directories, and labels=folder needs them",
            hint="make one for each class, or write labels=none",
        )


def _content(directory: Path, passed_over: Path | None = None) -> tuple[list[Path], list[Path]]:
    """The files and the directories in `directory`, each in the order of their names."""
    try:
        paths = sorted(directory.iterdir(), key=lambda path: path.name)
    except FileNotFoundError:
        raise absent(directory) from None
    except NotADirectoryError:
        raise InputRefused(
            f"{directory} is not a directory", hint="name the directory that the files are in"
        ) from None
    except OSError as error:
        raise InputRefused(f"{directory} cannot be read: {error.strerror or error}") from error
    files: list[Path] = []
    directories: list[Path] = []
    for path in paths:
        if path.name.startswith(".") or path.name.lower() in _LEFT_BEHIND:
            continue
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            directories.append(path)
        elif not stat.S_ISREG(mode):
            raise InputRefused(f"{path} is a device or pipe, not a file")
        elif passed_over is None or path.resolve() != passed_over.resolve():
            files.append(path)
    return files, directories


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        raise InputRefused(f"{path} is a link to nothing", hint="delete or repair it") from None
    except OSError as error:
        raise InputRefused(f"{path} cannot be read: {error.strerror or error}") from error


def _files_of(class_directory: Path) -> list[Path]:
    files, directories = _content(class_directory)
    if directories:
        raise InputRefused(
            f"{class_directory} has directories in it: {some(directories)}",
            hint="classes are one level deep: DIR/CLASS/FILE",
        )
    if not files:
        raise InputRefused(
            f"{class_directory} has no files in it, so its class has no samples",
            hint="delete it, or put samples into it",
        )
    return files


def _class_of(file: Path, way: str) -> str:
    name, mark, _ = file.name.partition("_") if way == "prefix" else (file.parent.name, "_", "")
    if not (name and mark):
        raise InputRefused(
            f"{file} has no class before a '_' in its name, and labels=prefix needs one",
            hint="names look like this: yes_0001.wav",
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputRefused(f"the class of {os.fsencode(file)!r} is not valid UTF-8") from None
    return name


def _class_order(path: Path, present: set[str]) -> list[str]:
    """The class names in the file at `path`, which must be those that were found."""
    with opened(path) as (file, size_bytes):
        if size_bytes > _LARGEST_CLASSES_BYTES:
            raise InputRefused(f"{path} has {size_bytes:,} bytes: that is not a list of classes")
        content = file.read()
    try:
        names = [line.strip() for line in content.decode("utf-8-sig").rstrip().splitlines()]
    except UnicodeDecodeError:
        raise InputRefused(
            f"{path} is not UTF-8 text", hint="write one class name per line"
        ) from None
    twice = [name for name, count in Counter(names).items() if count > 1]
    missing = [name for name in names if name not in present]
    extra = sorted(present - set(names))
    problems = [
        *(["it has an empty line"] if "" in names else []),
        *(f"{name!r} is in it twice" for name in twice if name),
        *(f"{name!r} has no samples" for name in missing if name),
        *(f"{name!r} is not in it" for name in extra),
    ]
    if problems:
        raise InputRefused(
            f"{path} does not list the classes that exist: {'; '.join(problems[:_SHOWN])}",
            hint="write one class name per line, each as its directory or prefix is named",
        )
    return names
