"""What a project's configuration names, and whether it may.

A project is often somebody else's: a checkout, a pull request. Its configuration may name what is
inside it. Only the user can allow anything else, on the command line or in the user's configuration
(`system.store.user`). Code and programs inside the project, which change with it, are allowed by
their hash.
"""

from __future__ import annotations

import glob
import mmap
import os
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.system.store.files import sha256_file
from edgeconv.system.store.hashes import hash_of
from edgeconv.system.store.toml_file import read_toml, shown, toml_value
from edgeconv.system.store.user import (
    KEYS,
    PROJECTS,
    Allowed,
    both,
    read_user_config,
    user_configuration,
)
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.requests.texts import Reach, Sort
    from edgeconv.system.store.user import Kind


class Granted(msgspec.Struct, frozen=True):
    """What the command line allows a project: `--allow`, and all its code with `--allow-code`."""

    allowed: Allowed = Allowed()
    any_code: bool = False


NOTHING_GRANTED = Granted()


class NotAllowed(UsageError):
    """A configuration names what a project may not choose."""


class _Scope(NamedTuple):
    """The project, and what its user allows."""

    root: str
    allowed: Allowed
    any_code: bool

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.root, *self.allowed.directories)


class Refusal(NamedTuple):
    """Why something is not allowed, and how to allow it: `option` on the command line, if any."""

    message: str
    hint: str
    option: str = ""


def refusal(reach: Reach, config: Path, granted: Granted) -> Refusal | None:
    """Why a configuration may not name this; None if it may.

    Raises `UsageError` where the user's configuration cannot be read.
    """
    inside = _Scope(str(project_of(config)), granted.allowed, granted.any_code)
    refused = _RULES[reach.sort](reach.text, inside)
    if refused is None:
        return None
    # Read only now: most projects never need it.
    allowed = both(granted.allowed, read_user_config().allow)
    if any(is_within(inside.root, project) for project in allowed.projects):
        return None
    return _RULES[reach.sort](reach.text, inside._replace(allowed=allowed))


def _path(text: str, scope: _Scope) -> Refusal | None:
    return _out_of_project(outside(text, scope.roots), text, scope)


def _tree(text: str, scope: _Scope) -> Refusal | None:
    # Also the files of a pattern, and links in a directory.
    real = next(filter(None, (outside(each, scope.roots) for each in _read_at(text))), "")
    return _out_of_project(real, text, scope)


def _out_of_project(real: str, text: str, scope: _Scope) -> Refusal | None:
    if not real:
        return None
    if text.startswith("~"):
        hint = "write a path relative to the file, or an absolute one"
        return Refusal(f"names {shown(text)}, and ~ is not a directory of a project", hint)
    directory = real if Path(real).is_dir() else os.path.dirname(real)  # noqa: PTH120
    here = str(Path.cwd())
    leads = "" if real == text else f", which is {shown(real)}"
    return Refusal(
        f"names {shown(text)}{leads}: not in the project {scope.root}",
        "the project is the configuration's folder, or the repository that tracks it; to allow "
        f"this: {_ways('directory', directory)}",
        # Recorded with the command that it belongs to, which starts here as well.
        _option(
            "directory", os.path.relpath(directory) if is_within(directory, here) else directory
        ),
    )


def _named(kind: Kind, what: str) -> Callable[[str, _Scope], Refusal | None]:
    def rule(text: str, scope: _Scope) -> Refusal | None:
        if text in getattr(scope.allowed, KEYS[kind]):
            return None
        hint = f"if you know what it reaches: {_ways(kind, text)}"
        message = f"names {what}, {shown(text)}, {_NOT_BY_FILE}"
        return Refusal(message, hint, _option(kind, text))

    return rule


def _code(text: str, scope: _Scope) -> Refusal | None:
    return _by_hash(text, scope, _code_hash(text))


def _program(text: str, scope: _Scope) -> Refusal | None:
    real = os.path.realpath(shutil.which(text) or text)
    if not is_within(real, scope.root):
        if scope.any_code or real in scope.allowed.programs:
            return None
        what = f"names code, the program {shown(text)}, {_NOT_BY_FILE}"
        hint = f"{_ALL_CODE}; or this program: {_ways('program', real)}"
        return Refusal(what, hint, _ALLOW_CODE)
    return _file(text, scope)


def _file(text: str, scope: _Scope) -> Refusal | None:
    path = Path(os.path.realpath(shutil.which(text) or text))
    if not is_within(str(path), scope.root):
        return None
    return _by_hash(text, scope, sha256_file(path) if path.is_file() else "")


def _by_hash(text: str, scope: _Scope, sha256: str) -> Refusal | None:
    if scope.any_code or (sha256 and sha256 in scope.allowed.code):
        return None
    ways = f"; or as it is now: {_ways('code', sha256)}" if sha256 else ""
    message = f"names code, {shown(text)}, {_NOT_BY_FILE}"
    return Refusal(message, f"{_ALL_CODE}{ways}", _ALLOW_CODE)


def _code_hash(text: str) -> str:
    """The hash of a module's source and of its imports next to it; "" without a module."""
    from edgeconv.data.code import custom_hash, find_custom, shadows

    try:
        custom = find_custom(text, str(Path.cwd()))
        return hash_of(custom_hash([custom]), shadows(custom.root))
    except (UsageError, InputRefused, OSError):
        return ""


def _option(kind: Kind, value: str) -> str:
    return f"--allow {shlex.quote(f'{kind}={value}')}"


def _ways(kind: Kind, value: str) -> str:
    """How a user allows one thing, once or always."""
    return (
        f"{_option(kind, value)} on the command line, or "
        f"{KEYS[kind]} = [{toml_value(value)}] below [allow] in {user_configuration()} (where "
        f"{PROJECTS} can have the folders of your own projects)"
    )


_NOT_BY_FILE = "which a configuration alone may not do"
_ALLOW_CODE = "--allow-code"
_ALL_CODE = f"look at what it runs, and allow it with {_ALLOW_CODE} on the command line"
_RULES: dict[Sort, Callable[[str, _Scope], Refusal | None]] = {
    "path": _path,
    "tree": _tree,
    "address": _named("address", "an address"),
    "code": _code,
    "program": _program,
    "file": _file,
    "runtime": _named("runtime", "a runtime"),
    "tracker": _named("tracker", "a tracker"),
}


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
    """Whether a repository's index has a file; git itself could run programs of a checkout."""
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
