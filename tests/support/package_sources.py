"""The files of the package, and what each imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from places import ROOT


class Import(NamedTuple):
    """One imported module: where, and when.

    `at_once`: as soon as the file is. `is_run`: at all, and not for a type checker only.
    """

    where: str
    module: str
    at_once: bool
    is_run: bool


@dataclass(frozen=True)
class Source:
    """A file of the package, under its name in the package."""

    name: str
    module: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed when it is asked for: each process of a run of the tests imports this."""
        return ast.parse(self.text)


def sources() -> list[Source]:
    folders = {"": ROOT / "edgeconv", "models/": ROOT / "models"}
    found = []
    for prefix, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                # Generated.
                continue
            name = prefix + path.relative_to(folder).as_posix()
            parts = ["edgeconv", *Path(name).with_suffix("").parts]
            text = path.read_text(encoding="utf-8")
            module = ".".join(parts).removesuffix(".__init__")
            found.append(Source(name, module, text))
    return found


SOURCES = sources()


def imports(source: Source) -> Iterator[Import]:
    """Every import; what only a type checker sees is not at once."""
    yield from _imports(source, source.tree, at_once=True, is_run=True)


def _imports(source: Source, node: ast.AST, *, at_once: bool, is_run: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        where = f"{source.name}:{getattr(child, 'lineno', 0)}"
        for module in _imported(source, child):
            yield Import(where, module, at_once and is_run, is_run)
        later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        never = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _imports(
            source, child, at_once=at_once and not later, is_run=is_run and not never
        )


def _imported(source: Source, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert not node.level, f"{source.name}:{node.lineno}: a relative import"
    assert node.module is not None
    if node.module == "edgeconv":
        return [f"edgeconv.{alias.name}" for alias in node.names]
    return [node.module]
