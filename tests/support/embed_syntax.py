"""Parsers of other languages, for what is generated in them; tree-sitter's, from PyPI."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def mistakes(file: Path, grammar: str) -> list[str]:
    """Where the grammar, a module such as tree_sitter_swift, does not take the file; skips without
    it.
    """
    tree_sitter = pytest.importorskip("tree_sitter", reason="tree-sitter is not installed")
    language = pytest.importorskip(grammar, reason=f"{grammar} is not installed")
    parser = tree_sitter.Parser(tree_sitter.Language(language.language()))
    tree = parser.parse(file.read_bytes())
    return [
        f"{file.name}:{node.start_point[0] + 1}: {node.text.decode()[:60]!r}"
        for node in _nodes(tree.root_node)
        if node.type == "ERROR" or node.is_missing
    ]


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _nodes(child)
