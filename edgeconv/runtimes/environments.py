"""Environments on the disk, and the base that those of one Python share.

An environment is a directory of the user's cache. It is complete once it has a ready.json, which is
written last and seals every file. One without it, or changed since, is made again.

A base is an environment with pip and numpy. The others have only what their runtime needs beyond
it: their Python sees the packages of the base behind its own, by a .pth file, so pip installs
another numpy into an environment only where its runtime cannot have that of the base.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import (
    in_use,
    locked,
    scratch_directory,
    seal_directory,
    sealed_directory,
)
from edgeconv.types.errors import OutputRefused, PackageMissing, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


MARKER, VENV = "ready.json", "venv"
_INSTALL_TIMEOUT_S = 900.0
# pip prints it where it has no wheel for this Python; it may have one for another.
_NO_WHEEL = "No matching distribution found"
_PTH = "edgeconv-base.pth"


class InstalledRuntime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ready.json: what an environment contains, and the seconds that making it took.

    `base` is the name of the one whose packages it shares, "" for none. `sha256` has the packages
    of an emulated one, by the names of their files.
    """

    runtime: str
    python: str
    packages: dict[str, str]
    seconds: float
    base: str = ""
    sha256: dict[str, str] = {}


def ready(directory: Path) -> InstalledRuntime | None:
    """The contents of an environment that, with its base, is unchanged since it was made here.

    From then on this process holds both: they are not pruned.
    """
    marker = directory / MARKER
    if not marker.is_file():
        return None
    in_use.take(directory, marker)
    sealed = sealed_directory(directory / VENV, marker)
    try:
        installed = msgspec.json.decode(sealed, type=InstalledRuntime) if sealed else None
    except msgspec.DecodeError:
        return None
    # The base last, so that it is never used less recently than what needs it.
    if installed is None or (installed.base and not ready(directory.with_name(installed.base))):
        return None
    return installed


def complete(directory: Path, contents: InstalledRuntime) -> None:
    """Seal an environment, and hold it."""
    seal_directory(directory / VENV, directory / MARKER, msgspec.json.encode(contents))
    in_use.take(directory, directory / MARKER)


@contextlib.contextmanager
def new_directory(directory: Path) -> Iterator[None]:
    """An empty directory for an environment, which is removed unless it is filled without errors.

    Raises `OutputRefused` where it cannot be made.
    """
    with contextlib.ExitStack() as unless_filled:
        unless_filled.callback(shutil.rmtree, directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)
        make_directory(directory)
        yield
        unless_filled.pop_all()


def make_directory(directory: Path) -> None:
    """Make a directory of the cache. Raises `OutputRefused`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot create {directory}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error


def run_in(directory: Path, command: Sequence[str], label: str, hint: str) -> None:
    """Run a step of an installation. Raises `PackageMissing`, or `ToolFailed` with the hint."""
    output, failure = run_program(
        command,
        label=label,
        cwd=directory,
        timeout_s=_INSTALL_TIMEOUT_S,
        # A user's own settings of pip would put the packages outside of the environment.
        environment={"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": ""},
    )
    if failure is not None:
        error_type = PackageMissing if _NO_WHEEL in output else ToolFailed
        raise error_type(failure.message, hint=hint) from failure


def pip_install(directory: Path, requirements: Sequence[str], label: str, hint: str) -> None:
    """Install packages into an environment by its pip. Raises as `run_in` does."""
    pip = [
        *(str(python_of(directory)), "-I", "-m", "pip", "install", "--only-binary", ":all:"),
        *("--progress-bar", "off", "--no-input", "--disable-pip-version-check", *requirements),
    ]
    run_in(directory, pip, label, hint)


def python_of(directory: Path) -> Path:
    """The Python of an environment."""
    return directory / VENV / "bin" / "python"


def site_packages(directory: Path) -> list[Path]:
    """Where the packages of an environment are."""
    return sorted((directory / VENV / "lib").glob("python*/site-packages"))


def versions_of(names: Iterable[str], directories: Iterable[Path]) -> dict[str, str]:
    """The versions of the packages of these names, those in the first directories coming last."""
    installed = metadata.distributions(path=[str(path) for path in directories])
    return {d.metadata["Name"]: d.version for d in installed if d.metadata["Name"] in set(names)}


def python_version(directory: Path) -> str:
    """The version of an environment's Python, as 3.11.7."""
    settings = (directory / VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    pairs = dict(line.split(" = ", 1) for line in settings.splitlines() if " = " in line)
    return pairs["version"]


def install_beside(
    directory: Path, base: Path, interpreter: Interpreter, requirements: Sequence[str], label: str
) -> None:
    """Install packages into a new environment, those excepted that its base has.

    Raises as `run_in` does.
    """
    python = "{}.{}".format(*interpreter.version)
    hint = f"check that the version exists for Python {python}, and that pip reaches its index"
    venv = [interpreter.path, "-I", "-m", "venv", "--without-pip", str(directory / VENV)]
    run_in(directory, venv, label, hint)
    (own,), (shared,) = site_packages(directory), site_packages(base)
    (own / _PTH).write_text(f"{shared}\n", encoding="utf-8")
    pip_install(directory, requirements, label, hint)


def base_of(
    folder: Path,
    numpy: str,
    interpreter: Interpreter,
    label: str,
    on_progress: Callable[[str], None],
) -> Path:
    """The base with a requirement of numpy, such as "numpy<2", in `folder`; made if need be.

    `label` is what it is for. Raises as `run_in` does.
    """
    name = "base-{}-py{}{}".format(numpy.replace("<", "-before-"), *interpreter.version)
    base = folder / name
    make_directory(folder)
    waiting = f"waiting for another run that is installing {numpy}"
    with locked(folder / f"{name}.lock", on_wait=lambda: on_progress(waiting)):
        if not ready(base):
            with new_directory(base):
                _fill_base(base, numpy, interpreter, f"{label}: {numpy}")
    return base


def _fill_base(base: Path, numpy: str, interpreter: Interpreter, label: str) -> None:
    started = time.monotonic()
    hint = "check that pip reaches its package index"
    run_in(base, [interpreter.path, "-I", "-m", "venv", str(base / VENV)], label, hint)
    pip_install(base, [numpy], label, hint)
    packages = versions_of(["numpy"], site_packages(base))
    contents = InstalledRuntime(
        runtime=f"numpy {packages['numpy']}",
        python=python_version(base),
        packages=packages,
        seconds=time.monotonic() - started,
    )
    complete(base, contents)


# The Pythons of this machine that can make an environment.

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
