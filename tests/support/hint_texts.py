"""The hints that a refused conversion can print, read from the source."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from places import ROOT

PACKAGE = ROOT / "edgeconv"
ROOMS = ("conversion", "model", "quantize", "tf")
# `train` and `bench` refuse with hints of their own.
OTHERS = ("tf/training/", "tf/baseline.py")
# What a call was told to do is in its usage.
_USAGE = "UsageError"
_WORD = re.compile("[A-Za-z]{2,}")
_FEWEST_WORDS = 3
_DEEPEST = 3
Scope = Mapping[str, Sequence[ast.expr]]


def hint_texts() -> dict[str, str]:
    """Each text that a hint may be, {} where a value is put in, and the module that has it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _modules()}
    everywhere: dict[str, list[ast.expr]] = {}
    for tree in trees.values():
        _note(tree.body, everywhere)
    found = {}
    for path, tree in trees.items():
        scope = dict(everywhere)
        own: dict[str, list[ast.expr]] = {}
        _note(ast.walk(tree), own)
        scope |= own
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) != _USAGE:
                for text in _texts_of(call, scope):
                    found[text] = str(path.relative_to(PACKAGE))
    return found


def _modules() -> list[Path]:
    paths = sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
    return [path for path in paths if not any(other in str(path) for other in OTHERS)]


def _note(nodes: Iterator[ast.AST] | Sequence[ast.AST], scope: dict[str, list[ast.expr]]) -> None:
    """Note what names are given, and what functions return."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            ends = (each for each in ast.walk(node) if isinstance(each, ast.Return))
            scope.setdefault(node.name, []).extend(end.value for end in ends if end.value)


def _texts_of(call: ast.Call, scope: Scope) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "hint":
            texts = _texts(keyword.value, scope)
            yield from (text for text in texts if len(_WORD.findall(text)) >= _FEWEST_WORDS)


def _texts(node: ast.AST, scope: Scope, depth: int = 0) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield "".join(map(str, parts))
    name = node.id if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
    if name is not None and depth < _DEEPEST:
        for value in scope.get(name, ()):
            yield from _texts(value, scope, depth + 1)
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from (
                ()
                if isinstance(child, ast.Constant) and isinstance(node, ast.JoinedStr)
                else _texts(child, scope, depth)
            )
