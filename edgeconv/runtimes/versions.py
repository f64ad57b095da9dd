"""The versions of a runtime that pip's index has for this Python, as in "litert>=2.0"."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from edgeconv.runtimes.choice import target_runtime
from edgeconv.runtimes.isolated import distribution_of
from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import (
    cache_directory,
    hash_of,
    publish_sealed,
    read_sealed,
    scratch_directory,
)
from edgeconv.types import RuntimeVersions
from edgeconv.types.errors import OutputRefused, ToolFailed, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.types import TargetRuntime

_TIMEOUT_S = 120.0
# A check where nothing changed must not wait for the index.
_FRESH_S = 86400.0
# tflite-micro has a build for each day, and no specifier chooses one.
_NAMES = ("litert", "tensorflow", "tflite-runtime")
_FORM = re.compile(r"([a-z][a-z-]*?)\s*([<>=!~].*)?")
# What pip prints on the line of its answer.
_ANSWER = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


def parse_versions(text: str) -> RuntimeVersions:
    """The runtime and the PEP 440 specifier of its versions in `text`. Raises `UsageError`."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    match = _FORM.fullmatch(text.strip())
    name = match[1] if match else re.split(r"[^a-z-]", text.strip())[0]
    if name not in _NAMES:
        raise unknown_name("runtime with versions", name, _NAMES)
    specifier = (match[2] or "").strip() if match else ""
    try:
        if not specifier:
            raise InvalidSpecifier(text)
        return RuntimeVersions(name=name, specifier=str(SpecifierSet(specifier)))
    except InvalidSpecifier as error:
        raise UsageError(
            f"{text!r} has no version specifier after {name}",
            hint=f"write one as in PEP 440: '{name}>=2.0' or '{name}>=2.0,!=2.1.0', in quotes",
        ) from error


def matching_versions(choice: RuntimeVersions) -> tuple[TargetRuntime, ...]:
    """The versions of `choice` in pip's index that have files for this Python, the oldest first.

    Raises `ToolFailed` where pip does not reach its index, `UsageError` where none matches.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    known = sorted(map(Version, index_versions(choice.name)))
    matching = list(SpecifierSet(choice.specifier).filter(known))
    if not matching:
        raise UsageError(
            f"no version of {choice.name} for Python {_python()} matches {choice.specifier}",
            hint=f"pip's index has {_shown(map(str, known))}",
        )
    return tuple(target_runtime(choice.name, str(version)) for version in matching)


def index_versions(name: str) -> list[str]:
    """All versions of a runtime that pip can install in this Python; pip lists them once a day.

    Raises `ToolFailed`.
    """
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    what = ("versions", name, _python(), hash_of(settings))
    note = cache_directory() / "versions" / hash_of(*what)
    with contextlib.suppress(OSError):
        is_fresh = abs(time.time() - note.stat().st_mtime) < _FRESH_S
        if is_fresh and (kept := read_sealed(note, *what)):
            return msgspec.json.decode(kept, type=list[str])
    versions = _listed_by_pip(name)
    # A cache may be read-only.
    with contextlib.suppress(OSError, OutputRefused):
        note.parent.mkdir(parents=True, exist_ok=True)
        publish_sealed(msgspec.json.encode(versions), note, *what)
    return versions


def _listed_by_pip(name: str) -> list[str]:
    distribution = distribution_of(name)
    pip = ["-I", "-m", "pip", "index", "versions", distribution, "--disable-pip-version-check"]
    with scratch_directory() as scratch:
        output, failure = run_program(
            [sys.executable, *pip, "--no-input", "--retries", "1", "--timeout", "15"],
            label=f"listing the versions of {distribution}",
            cwd=scratch,
            timeout_s=_TIMEOUT_S,
        )
    if failure is None and (answer := _ANSWER.search(output)):
        return [each.strip() for each in answer[1].split(",")]
    message = failure.message if failure else "pip listed no versions"
    raise ToolFailed(
        f"the versions of {name} for Python {_python()} are unknown: {message}",
        hint=f"check that `python -m pip index versions {distribution}` reaches pip's index; "
        f"--runtime {name}==VERSION runs a version whose environment already exists",
    ) from failure


def _python() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def _shown(versions: Iterable[str]) -> str:
    return ", ".join(versions)
