"""The zoo: models that scripts of this folder write, kept on disk from one run to the next.

A script is a zoo: it writes models and samples for them into the directory that is its last
argument. What it wrote is kept under a hash of all that decides it: its source and the modules of
this folder that it imports, its inputs, and the versions of the libraries. A script that imports
edgeconv tests edgeconv with its models, and runs each time.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from forking import output_of
from places import SUPPORT

if TYPE_CHECKING:
    from collections.abc import Iterator

_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KEPT = _CACHES / "edgeconv-tests" / "zoo"
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "numpy", "ai-edge-litert", "scikit-learn")
_UNUSED_S = 7 * 24 * 3600.0


def stocked(directory: Path, script: str, *arguments: Path) -> Path:
    """`directory`, whose files are inputs, with what a script adds to them.

    `arguments` are files that the script reads.
    """
    key = _key(directory, script, arguments)
    if not key:
        output_of(SUPPORT / script, *arguments, directory)
        return directory
    kept = KEPT / f"{Path(script).stem}-{key}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / f"{script}.lock"):
        if not kept.exists():
            _forget_unused()
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                made = Path(shutil.copytree(directory, Path(scratch, "made")))
                output_of(SUPPORT / script, *arguments, made)
                made.rename(kept)
        os.utime(kept)
    return Path(shutil.copytree(kept, directory, dirs_exist_ok=True))


def _key(directory: Path, script: str, arguments: tuple[Path, ...]) -> str:
    """A hash of all that decides what a script writes, "" if edgeconv is a part of that."""
    sources = dict(_sources(SUPPORT / script))
    if any(name.partition(".")[0] == "edgeconv" for names in sources.values() for name in names):
        return ""
    inputs = sorted(path for path in directory.rglob("*") if path.is_file())
    said = [sys.version, script, *(f"{name} {version(name)}" for name in _LIBRARIES)]
    said += [str(path.relative_to(directory)) for path in inputs]
    digest = hashlib.sha256("\n".join(said).encode())
    for path in (*sorted(sources), *inputs, *arguments):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _sources(path: Path) -> Iterator[tuple[Path, set[str]]]:
    """A file, and those of this folder that it imports, each with the modules it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [*ast.walk(tree)]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    yield path, modules
    for module in modules:
        if (imported := SUPPORT / f"{module}.py").is_file():
            yield from _sources(imported)


def _forget_unused() -> None:
    for kept in KEPT.iterdir():
        if kept.is_dir() and time.time() - kept.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(kept, ignore_errors=True)
