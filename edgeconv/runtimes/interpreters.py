"""The Pythons of this machine that can make an environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.processes.workers import run_program
from edgeconv.store import scratch_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Version = tuple[int, int]

_TRY_TIMEOUT_S = 30.0
# Debian has ensurepip in another package; without it venv fails half-way.
_TRY = (
    "import ensurepip, venv, sys;"
    "print('edgeconv', sys.implementation.name, *sys.version_info[:2], sys.maxsize > 2**32)"
)


class Interpreter(NamedTuple):
    """A CPython that can make environments: its path, and its version."""

    path: str
    version: Version


def preferred(versions: Sequence[Version]) -> list[Version]:
    """`versions` with the present Python's first, where it is one of them."""
    return sorted(versions, key=lambda version: version != sys.version_info[:2])


def interpreters(versions: Sequence[Version]) -> Iterator[Interpreter]:
    """A CPython of each of `versions` on this machine, the present one first.

    Each was run: a name on the PATH may be a shim without a Python.
    """
    for version in preferred(versions):
        works = (path for path in _candidates(version) if _works(path, version))
        if path := next(works, None):
            yield Interpreter(path, version)


def _candidates(version: Version) -> Iterator[str]:
    if version == sys.version_info[:2]:
        yield sys.executable
    name = "python{}.{}".format(*version)
    for directory in os.get_exec_path():
        path = Path(directory, name)
        if path.is_file() and os.access(path, os.X_OK):
            yield str(path)


def _works(path: str, version: Version) -> bool:
    with scratch_directory() as scratch:
        command = [path, "-I", "-c", _TRY]
        output, failure = run_program(command, label=path, cwd=scratch, timeout_s=_TRY_TIMEOUT_S)
    wanted_line = "edgeconv cpython {} {} True".format(*version)
    return failure is None and wanted_line in output.splitlines()
