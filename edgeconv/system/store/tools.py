"""The tools whose output edgeconv publishes: their versions, and the quantizer under its name."""

import contextlib
import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from edgeconv.types.errors import ToolFailed

# The names of the quantizer's distribution, the newest first. Each has the same modules.
QUANTIZERS = ("litert-quantizer", "ai-edge-quantizer")


@cache
def tool_versions() -> dict[str, str]:
    """The versions of edgeconv and of the installed tools whose output it publishes.

    Read from the packages' metadata; nothing is imported.
    """
    from edgeconv.types.version import VERSION

    versions = {"edgeconv": VERSION}
    quantizer = _quantizer() or QUANTIZERS[0]
    for name in ("tensorflow", "tf-keras", "keras", "ai-edge-litert", quantizer, "numpy"):
        version = installed_version(name)
        if version is not None:
            versions[name] = version
    return versions


@cache
def code_hash() -> str:
    """The sha256 of edgeconv's own code: what it refuses may be taken by the next one.

    The same in every place that the same code is installed in.
    """
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def quantizer_module(name: str) -> Any:
    """A module of the quantizer, such as "calibrator". Raises `ToolFailed` where none is installed.

    A quantizer that was installed under its old name is as good.
    """
    quantizer = _quantizer()
    if quantizer is None:
        raise ToolFailed(f"{QUANTIZERS[0]} is not installed", hint=f"pip install {QUANTIZERS[0]}")
    return importlib.import_module(f"{quantizer.replace('-', '_')}.{name}")


def version_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Each tool whose version differs: "keras none → 3.0".

    The quantizer is one tool under any of its names:
    "ai-edge-quantizer 0.10.0 → litert-quantizer 0.11.0".
    """
    return tuple(_version_changes(dict(before), dict(after)))


def _version_changes(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    old, new = _recorded(before), _recorded(after)
    if old and new and old != new:
        yield f"{old} {before.pop(old)} → {new} {after.pop(new)}"
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}"


def _recorded(versions: Mapping[str, str]) -> str | None:
    return next((name for name in QUANTIZERS if name in versions), None)


@cache
def _quantizer() -> str | None:
    return next((name for name in QUANTIZERS if installed_version(name) is not None), None)


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, as its metadata have it; None without one.

    `importlib.metadata` would find the same, and loads sixty modules for it.
    """
    directory = _distributions().get(_key(distribution))
    for name in ("METADATA", "PKG-INFO", "") if directory else ():
        with contextlib.suppress(OSError):
            text = Path(directory or "", name).read_text(encoding="utf-8", errors="replace")
            return text.partition("\nVersion:")[2].partition("\n")[0].strip() or None
    return None


@cache
def _distributions() -> dict[str, Path]:
    """Where the metadata of each installed distribution are, by `_key` of its name."""
    found: dict[str, Path] = {}
    for place in sys.path:
        with contextlib.suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                stem, _, ending = entry.name.rpartition(".")
                if ending in ("dist-info", "egg-info"):
                    found.setdefault(_key(stem.partition("-")[0]), Path(entry.path))
    return found


def _key(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
