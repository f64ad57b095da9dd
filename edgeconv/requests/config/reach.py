"""What a project's configuration names, and whether it may.

A project is often somebody else's: a checkout, a pull request. Its configuration may name what is
inside it. Only the user can allow anything else, on the command line or in the user's configuration
(`system.store.user`). Code and programs inside the project, which change with it, are allowed by
their hash.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.requests.config.project import is_within, outside, project_of, tree_outside
from edgeconv.system.store.hashes import hash_of, sha256_file
from edgeconv.system.store.toml_text import shown, toml_value
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
    from collections.abc import Callable

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
    """Why something is not allowed, and how the user can allow it: `option` on the command line."""

    message: str
    hint: str
    option: str = "--allow-code"


def refusal(reach: Reach, config: Path, granted: Granted) -> Refusal | None:
    """Why what a configuration names is refused; None where it is allowed.

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
    return _out_of_project(tree_outside(text, scope.roots), text, scope)


def _out_of_project(real: str, text: str, scope: _Scope) -> Refusal | None:
    if not real:
        return None
    if text.startswith("~"):
        hint = "write a path relative to the file, or an absolute one"
        return Refusal(f"names {shown(text)}, and ~ is not a directory of a project", hint)
    directory = real if Path(real).is_dir() else os.path.dirname(real)  # noqa: PTH120
    leads = "" if real == text else f", which is {shown(real)}"
    return Refusal(
        f"names {shown(text)}{leads}: not in the project {scope.root}",
        "the project is the configuration's folder, or the repository that tracks it; to allow "
        f"this: {_ways('directory', directory)}",
        _option("directory", directory),
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
        return Refusal(what, f"{_ALL_CODE}; or this program: {_ways('program', real)}")
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
    return Refusal(f"names code, {shown(text)}, {_NOT_BY_FILE}", f"{_ALL_CODE}{ways}")


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
_ALL_CODE = "look at what it runs, and allow it with --allow-code on the command line"
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
