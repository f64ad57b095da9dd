"""The user's own Keras classes, `MODULE` or `MODULE:NAME`: where they are, without importing them.

MODULE is a dotted name that Python finds from a directory or among what is installed, or the path
of a file, `./my_layers.py`.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.data.code import no_module
from edgeconv.errors import InputRefused, UsageError
from edgeconv.store.hashes import hash_of, sha256_file, sha256_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class CustomModule(NamedTuple):
    """A module of the user's: `file` is its source, `root` the directory it is imported from.

    `name` is the class in it, "" for all that it defines.
    """

    root: Path
    module: str
    file: Path
    name: str


def is_path(text: str) -> bool:
    """Whether a text names the file of a module, and not its dotted name."""
    module = text.partition(":")[0]
    return module.endswith(".py") or "/" in module


def find_custom(text: str, directory: str) -> CustomModule:
    """The module that a text names, first in `directory`.

    Raises `UsageError` for a text of another form, `InputRefused` where there is no such module.
    """
    module, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
    if not module or (colon and not _NAME.fullmatch(name)):
        raise UsageError(
            f"--custom-objects {text!r} does not name a module or a class in one",
            hint="MODULE or MODULE:NAME, as in my_layers or ./my_layers.py:AttentionPool",
        )
    if is_path(text):
        return _of_file(Path(directory, module).absolute(), name)
    if not _NAME.fullmatch(module):
        raise UsageError(f"--custom-objects {text!r}: {module!r} is not the name of a module")
    return _of_name(module, directory, name)


def custom_files(text: str, directory: str) -> tuple[Path, ...]:
    """The source files that decide what a text names: its module, and its imports in that root.

    Raises as `find_custom`.
    """
    return tuple(file for _, file in _files(find_custom(text, directory)))


def custom_hash(modules: Iterable[CustomModule]) -> str:
    """The hash of the modules, and of what they import that lies in the same place."""
    return hash_of(
        [
            (m.module, m.name, sorted((name, sha256_file(file)) for name, file in _files(m)))
            for m in modules
        ]
    )


def shadows(root: Path) -> list[tuple[str, str]]:
    """The modules in `root` that come before installed ones of their names, with their hashes.

    Code that is imported from there gets them, whether it names them or not.
    """
    shadowing = []
    for name in sorted({entry.name.partition(".")[0] for entry in root.iterdir()}):
        spec = PathFinder.find_spec(name, [str(root)]) if name.isidentifier() else None
        if spec is None or spec.origin is None or PathFinder.find_spec(name, sys.path) is None:
            continue
        file = Path(spec.origin)
        is_package = spec.submodule_search_locations is not None
        shadowing.append((name, sha256_tree(file.parent) if is_package else sha256_file(file)))
    return shadowing


def _of_file(path: Path, name: str) -> CustomModule:
    if not path.is_file():
        raise InputRefused(f"--custom-objects: there is no file {path}", hint="check the path")
    if not path.stem.isidentifier():
        name = re.sub(r"\W", "_", path.stem)
        raise InputRefused(
            f"{path} cannot be imported: {path.stem!r} is not the name of a module",
            hint=f"rename it, for instance to {name}.py",
        )
    # A file in a package is imported as part of it.
    root, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return CustomModule(root, ".".join(parts), path, name)


def _of_name(module: str, directory: str, name: str) -> CustomModule:
    search = [directory, *sys.path]
    file = _source_of(module, search)
    if file is None:
        raise no_module(directory, module)
    depth = len(module.split(".")) + (file.stem == "__init__") - 1
    return CustomModule(file.parents[depth], module, file, name)


def _source_of(module: str, search: list[str]) -> Path | None:
    """The source file of a dotted name; no package is imported."""
    directories = search
    parts = module.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), directories)
        if spec is None:
            return None
        directories = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


def _files(custom: CustomModule) -> Iterator[tuple[str, Path]]:
    """The module's file, and those that it imports from the same root, directly or not.

    Of what is installed, only the same package is the user's.
    """
    top = custom.module.split(".")[0]
    is_installed = str(custom.root) in sysconfig.get_paths().values()
    waiting, visited = [*_with_packages(custom.module)], set[str]()
    while waiting:
        module = waiting.pop()
        if module in visited or (is_installed and module.split(".")[0] != top):
            continue
        visited.add(module)
        file = _source_of(module, [str(custom.root)])
        if file is None:
            continue
        # Also a compiled one, which decides what is run.
        yield module, file
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        for imported in _imported(file, package):
            waiting += _with_packages(imported)


def _with_packages(module: str) -> Iterator[str]:
    """A dotted name, and each package that is imported before it."""
    parts = module.split(".")
    return (".".join(parts[: index + 1]) for index in range(len(parts)))


def _imported(file: Path, package: str) -> Iterator[str]:
    """Every module that a file may import, by dotted name; nothing where it has no syntax."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The import gives the reason.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            yield from (part for part in (base, *(f"{base}.{a.name}" for a in node.names)) if part)
