"""Names and texts use the words of the field, and each class name has one meaning.

The words are in words.toml.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from package_sources import SOURCES, Source
from places import TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = TESTS / "unit" / "repository"
WORDS = tomllib.loads((FOLDER / "words.toml").read_text(encoding="utf-8"))
MARKS = re.compile("|".join(f"(?:{mark})" for mark in WORDS["marks"]), re.IGNORECASE)
BANNED = frozenset(WORDS["names"]["banned"])
STATES_ARRAYS = re.compile(r"\[|\([a-z*]+,|dtype|float32|int8|int64|shape|scalar")
ARRAYS = re.compile(r"\b(?:ndarray|NDArray|Array|Arrays)\b")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def room(source: Source) -> str:
    """The folder or the file of the package that a source is in."""
    return source.name.partition("/")[0].removesuffix(".py")


def texts(source: Source) -> Iterator[tuple[int, str]]:
    """Every text of a file, with its line: literals, and the parts of an f-string joined."""
    parts = {
        id(part)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            constants = [
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            ]
            yield node.lineno, "".join(constants)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            yield node.lineno, node.value


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a file gives to a variable, a parameter, a field or a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, Function):
            yield node.lineno, node.name


def classes() -> dict[str, list[str]]:
    """Where each class of the package is, by its name without underscores in front."""
    homes = defaultdict(list)
    for source in SOURCES:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(f"{source.name}:{node.lineno}")
    return homes


def array_functions() -> Iterator[tuple[Source, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The public functions of modules that take or return arrays."""
    for source in SOURCES:
        for node in source.tree.body:
            if isinstance(node, Function) and not node.name.startswith("_"):
                notes = [arg.annotation for arg in (*node.args.args, *node.args.kwonlyargs)]
                kinds = [ast.unparse(note) for note in (*notes, node.returns) if note is not None]
                if any(map(ARRAYS.search, kinds)):
                    yield source, node


def marked() -> list[str]:
    return [
        f"{room(source)} {source.name}:{line}: {match[0]!r} in {text[:80]!r}"
        for source in SOURCES
        for line, text in texts(source)
        if text not in WORDS["kept"]["texts"]
        for match in MARKS.finditer(text)
    ]


def banned() -> list[str]:
    return [
        f"{room(source)} {source.name}:{line}: {name}"
        for source in SOURCES
        for line, name in names(source.tree)
        if name.strip("_") in BANNED
    ]


def silent() -> list[str]:
    return [
        f"{room(source)} {source.name}:{node.lineno}: {node.name}"
        for source, node in array_functions()
        if not STATES_ARRAYS.search(ast.get_docstring(node) or "")
    ]


@pytest.mark.parametrize("found", [marked, banned, silent])
def test_words_names_and_docstrings_follow_the_rule(found: Callable[[], list[str]]) -> None:
    wrong = found()
    assert wrong == [], "\n".join(wrong)


def test_a_class_name_has_one_meaning() -> None:
    assert {name: homes for name, homes in classes().items() if len(homes) > 1} == {}


def test_the_rule_sees_what_it_is_about() -> None:
    text = 'one = 1\ndef said(place): return f"{place} is no file", "the lik" "e"'
    source = Source("room/file.py", "edgeconv.room.file", text)
    assert {name for _, name in names(source.tree)} == {"one", "said", "place"}
    assert [match[0] for _, text in texts(source) for match in MARKS.finditer(text)] == [
        "is no",
        "the like",
    ]
    assert MARKS.search("there is no file") is None
    assert MARKS.search("it is no longer there") is None
