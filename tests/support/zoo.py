"""The zoo: models that modules of this folder write, kept on disk from one run to the next.

A builder, MODULE:FUNCTION, writes models and samples for them into the directory that is its last
argument. What it wrote is kept under a hash of all that decides it: its source and what that needs
of this folder, its inputs, and the versions of the libraries. It does not use edgeconv, which the
tests do.
"""

import ast
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock
from forking import output_of
from places import SUPPORT

_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
KEPT = _CACHES / "edgeconv-tests" / "zoo"
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "numpy", "ai-edge-litert", "scikit-learn")
_UNUSED_S = 7 * 24 * 3600.0


# The builder has a process of its own, since it imports TensorFlow and Keras.
_BUILD = f"""
import importlib, os, pathlib, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, {str(SUPPORT)!r})
module, _, name = sys.argv[1].partition(":")
getattr(importlib.import_module(module), name)(*map(pathlib.Path, sys.argv[2:]))
"""


def stocked(directory: Path, builder: str, *arguments: Path) -> Path:
    """`directory`, whose files are inputs, with what a builder adds to them.

    `arguments` are files that it reads.
    """

    def make(made: Path) -> None:
        shutil.copytree(directory, made, dirs_exist_ok=True)
        output_of("-c", _BUILD, builder, *arguments, made)

    made = kept(builder.replace(":", "."), _key(directory, builder, arguments), make)
    return Path(shutil.copytree(made, directory, dirs_exist_ok=True))


def kept(name: str, key: str, make: Callable[[Path], object]) -> Path:
    """What `make` wrote into a directory under this key, in this run or one before."""
    place = KEPT / f"{name}-{key}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / f"{name}.lock"):
        if not place.exists():
            _forget_unused()
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                made = Path(scratch, "made")
                made.mkdir()
                make(made)
                made.rename(place)
        os.utime(place)
    return place


def key_of(*parts: str | bytes) -> str:
    """A hash of all that decides what is kept."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return digest.hexdigest()[:16]


def _key(directory: Path, builder: str, arguments: tuple[Path, ...]) -> str:
    """A hash of all that decides what a builder writes."""
    module, _, function = builder.partition(":")
    inputs = sorted(path for path in directory.rglob("*") if path.is_file())
    said = [sys.version, *(f"{name} {version(name)}" for name in _LIBRARIES)]
    said += [*_sources(module, function), *(str(path.relative_to(directory)) for path in inputs)]
    return key_of(*said, *(path.read_bytes() for path in (*inputs, *arguments)))


def _sources(module: str, function: str = "") -> Iterator[str]:
    """What of a module a function of it needs, and the modules here that it imports, whole."""
    path = SUPPORT / f"{module}.py"
    if not path.is_file():
        assert module.partition(".")[0] != "edgeconv", "what the zoo is made of is not tested by it"
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    kept = [node for node in tree.body if not (function and isinstance(node, ast.FunctionDef))]
    waiting = [function, *(name for node in kept for name in _names(node))]
    while waiting:
        node = functions.pop(waiting.pop(), None)
        if node and function:
            kept.append(node)
            waiting += _names(node)
    yield "\n".join(map(ast.unparse, kept))
    for each in (part for node in kept for part in ast.walk(node)):
        if isinstance(each, ast.ImportFrom):
            yield from _sources(each.module or "")
        elif isinstance(each, ast.Import):
            for alias in each.names:
                yield from _sources(alias.name)


def _names(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _forget_unused() -> None:
    for kept in KEPT.iterdir():
        if kept.is_dir() and time.time() - kept.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(kept, ignore_errors=True)
