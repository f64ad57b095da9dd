"""LiteRT.js from the npm registry, installed on demand and kept in the user's cache."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import (
    cache_directory,
    in_use,
    locked,
    scratch_directory,
    seal_directory,
    sealed_directory,
)
from edgeconv.types.errors import OutputRefused, ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The version of both packages, whose contents are known.
DEFAULT_VERSION = "2.5.3"
_INTEGRITY = {
    "@litertjs/core": (
        "sha512-PlGmbMOq9WitX7FO0jhbdJw9GthatsyuCQXjTt/wJZo0FLaw48q4tz8IwqgqCIkviYGr9OFDL1kCnN4nzWoyJQ=="
    ),
    "@litertjs/wasm-utils": (
        "sha512-4fJiw6tBQnIs+0jH/OQ16nYOiSl8/+zZnn5h2ul8aTKHi05sVqZW580Tmk78pC2kT39A9OYBVdFawteZ/sI1kQ=="
    ),
}
_VERSION = re.compile(r"\d+\.\d+\.\d+[-.\w]*")
_INSTALL_TIMEOUT_S = 600.0


def litertjs(version: str, on_progress: Callable[[str], None]) -> Path:
    """The node_modules with @litertjs/core, installed first if need be.

    Raises `UsageError` for a bad version or without npm, `ToolFailed` where npm fails, and
    `OutputRefused` where the cache cannot be written.
    """
    version = version or DEFAULT_VERSION
    if not _VERSION.fullmatch(version):
        raise UsageError(f"web=={version}: not a version of LiteRT.js", hint="as in web==2.5.3")
    directory = cache_directory() / "runtimes" / f"litertjs-{version}"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot create {directory.parent}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error
    modules, ready = directory / "node_modules", directory / "ready"
    if ready.exists():
        in_use.take(directory, ready)
    if sealed_directory(modules, ready) is None:
        with locked(directory.with_name(directory.name + ".lock")):
            if sealed_directory(modules, ready) is None:
                _install(version, directory, on_progress)
                seal_directory(modules, ready, b"")
                in_use.take(directory, ready)
    return modules


def _install(version: str, directory: Path, on_progress: Callable[[str], None]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError(
            "LiteRT.js needs npm, which is not installed", hint="install nodejs and npm"
        )
    on_progress(f"installing LiteRT.js {version}, once")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    versions = dict.fromkeys(_INTEGRITY, version)
    (directory / "package.json").write_text(
        json.dumps({"dependencies": versions}), encoding="utf-8"
    )
    known = version == DEFAULT_VERSION
    if known:
        (directory / "package-lock.json").write_text(_lock(version), encoding="utf-8")
    command = [npm, "ci" if known else "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    command += ["--prefix", str(directory)]
    label = f"installing LiteRT.js {version}"
    with scratch_directory() as scratch:
        _, failure = run_program(command, label=label, cwd=scratch, timeout_s=_INSTALL_TIMEOUT_S)
    if failure is not None:
        hint = "check that npm reaches its registry, and that the version exists"
        raise ToolFailed(failure.message, hint=hint) from failure


def _lock(version: str) -> str:
    """package-lock.json, which names the exact packages."""
    packages: dict[str, object] = {"": {"dependencies": dict.fromkeys(_INTEGRITY, version)}}
    for name, integrity in _INTEGRITY.items():
        packages[f"node_modules/{name}"] = {"version": version, "integrity": integrity}
    return json.dumps({"lockfileVersion": 3, "requires": True, "packages": packages})
