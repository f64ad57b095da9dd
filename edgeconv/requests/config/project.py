"""A configuration, and the project that it belongs to: the directory that its paths stay in.

It is the directory of the configuration or, where that is in a repository that tracks it, the top
of the repository. A stranger's directory that was unpacked inside a repository is not tracked.
"""

from __future__ import annotations

import glob
import mmap
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_NAME = "edgeconv.toml"
PYPROJECT = "pyproject.toml"
EDGECONV_TABLE = ("tool", "edgeconv")
_GIT = ".git"
_GIT_FILE = b"gitdir: "
_LONGEST_GIT_FILE_BYTES = 1 << 14
# An index has the length of a name in the 12 bits before it.
_LENGTH_BITS = 0xFFF


def find_config(directory: Path) -> Path | None:
    """The configuration of a directory: edgeconv.toml, else a pyproject.toml with its table.

    Raises `UsageError` for a pyproject.toml that names edgeconv and cannot be read, and for one of
    the files that is a link out of its project.
    """
    own = directory / FILE_NAME
    if own.exists() or own.is_symlink():
        return _not_elsewhere(own)
    project = _not_elsewhere(directory / PYPROJECT)
    if not _names_edgeconv(project):
        return None
    # Only now: most projects have no configuration.
    from edgeconv.system.store.toml_file import read_toml

    tool = read_toml(project).content.get("tool")
    return project if isinstance(tool, dict) and EDGECONV_TABLE[-1] in tool else None


def _not_elsewhere(file: Path) -> Path:
    if file.is_symlink() and (real := outside(str(file), (str(project_of(file)),))):
        raise UsageError(
            f"{file} is a link out of its project, to {real}",
            hint=f"to use it, name it: --config {file}",
        )
    return file


def _names_edgeconv(project: Path) -> bool:
    """Whether a file has to be read: most do not mention edgeconv."""
    try:
        return b"edgeconv" in project.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    except OSError:
        # The reader says why it cannot be read.
        return True


def project_of(config: Path) -> Path:
    """The resolved directory of the project that the file `config` belongs to."""
    return _project_of(os.path.realpath(config.parent), config.name)


def outside(path: str, roots: tuple[str, ...]) -> str:
    """Where `path` leads when that is in none of the resolved directories `roots`; else "".

    Links are followed, also in directories above a path that does not exist yet. What is in
    .git is in no project: programs are started from there.
    """
    real = os.path.realpath(path)
    # Some programs take ~ for the home directory.
    if path.startswith("~"):
        return path
    for root in roots:
        # Some file systems tell no case apart.
        parts = Path(real[len(root) :].casefold()).parts
        if is_within(real, root) and _GIT not in parts:
            return ""
    return real


def tree_outside(path: str, roots: tuple[str, ...]) -> str:
    """As `outside`, also for the files of a pattern, and links in a directory."""
    return next(filter(None, (outside(each, roots) for each in _read_at(path))), "")


def is_within(path: str, directory: str) -> bool:
    """Whether a resolved path is a resolved directory, or in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _read_at(path: str) -> Iterator[str]:
    yield path
    if glob.has_magic(path):
        yield from glob.iglob(path)  # noqa: PTH207
    elif os.path.isdir(path):  # noqa: PTH112
        yield from _links_below(path)


def _links_below(directory: str) -> Iterator[str]:
    waiting = [directory]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # Whoever reads it says why it cannot be read.
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


@cache
def _project_of(directory: str, name: str) -> Path:
    folder = Path(directory)
    top = next((each for each in (folder, *folder.parents) if (each / _GIT).exists()), folder)
    if top == folder or _is_above_home(top) or not _is_of_one_owner(top / _GIT, folder):
        return folder
    return top if _is_tracked((folder / name).relative_to(top), top / _GIT) else folder


def _is_above_home(directory: Path) -> bool:
    """A home directory may be a repository (of dotfiles), and is never one project."""
    # A user who has no home gets "~" back.
    return is_within(os.path.realpath(os.path.expanduser("~")), str(directory))  # noqa: PTH111


def _is_of_one_owner(git: Path, folder: Path) -> bool:
    """Not so where another user made a repository above, as in /tmp."""
    try:
        return git.stat().st_uid == folder.stat().st_uid
    except OSError:
        return False


def _is_tracked(file: Path, git: Path) -> bool:
    """Whether the index of a repository has a file; git itself could run what a checkout says."""
    name = os.fsencode(file.as_posix())
    try:
        with (
            (_git_directory(git) / "index").open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as index,
        ):
            return index[:4] == b"DIRC" and _has_name(index, name)
    except (OSError, ValueError):
        return False


def _git_directory(git: Path) -> Path:
    """Where .git is, which may be a file that says so (a worktree, a submodule)."""
    if git.is_dir():
        return git
    with git.open("rb") as file:
        text = file.read(_LONGEST_GIT_FILE_BYTES)
    return git.parent / os.fsdecode(text.removeprefix(_GIT_FILE).strip())


def _has_name(index: mmap.mmap, name: bytes) -> bool:
    length = min(len(name), _LENGTH_BITS)
    at = index.find(name + b"\0")
    while at >= 0:
        before = int.from_bytes(index[at - 2 : at], "big")
        if before & _LENGTH_BITS == length:
            return True
        at = index.find(name + b"\0", at + 1)
    return False
