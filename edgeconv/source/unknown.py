"""Which classes and functions in the configuration of a Keras file are not Keras's own."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.source.keras_names import KERAS_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

_KERAS = frozenset({"keras", "tf_keras"})
# What Keras imports by itself where it is installed.
_FAMILY = frozenset({"keras_hub", "keras_cv", "keras_nlp"})
# Names of what is neither a class nor a function of anybody's.
_PLAIN = frozenset({"Policy", "PolicyV1", "TypeSpec", "TensorShape", "CompositeTensor"})
# No loader of edgeconv reads these parts: a model is opened without its optimizer and losses.
_NOT_READ = frozenset({"compile_config", "build_config"})
_ACTIVATIONS = frozenset({"activation", "recurrent_activation"})
_FUNCTION = "function"


def unknown_classes(config: dict[str, Any], *, imports_any: bool = False) -> tuple[str, ...]:
    """The names of classes and functions in `config` that neither Keras 3 nor tf_keras has.

    A registered one is written PACKAGE>NAME. `imports_any`: the loader is tf_keras's for .keras
    files, which imports any module that is installed.
    """
    return tuple(sorted(set(_unknown(config, imports_any=imports_any))))


def _unknown(config: dict[str, Any], *, imports_any: bool) -> Iterator[str]:
    waiting: list[Any] = [config]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += [value for key, value in node.items() if key not in _NOT_READ]
            if isinstance(node.get("class_name"), str) and "config" in node:
                yield from _of_object(node, imports_any=imports_any)
            names = (node.get(key) for key in _ACTIVATIONS)
            yield from (n for n in names if isinstance(n, str) and n not in KERAS_NAMES)


def _of_object(node: dict[str, Any], *, imports_any: bool) -> Iterator[str]:
    """The name of what a serialized object is made of, if Keras does not have that."""
    name = node["config"] if node["class_name"] == _FUNCTION else node["class_name"]
    if not isinstance(name, str) or name.startswith("__") or name in _PLAIN:
        return
    registered = node.get("registered_name")
    module = node.get("module")
    if isinstance(module, str):
        package = module.split(".")[0]
        is_keras = package in _KERAS or (module == "builtins" and name in KERAS_NAMES)
        if is_keras or ((package in _FAMILY or imports_any) and is_installed(package)):
            return
    elif name in KERAS_NAMES and not registered:
        return
    is_registered = isinstance(registered, str) and registered not in ("", _FUNCTION)
    yield str(registered) if is_registered else name


def is_installed(package: str) -> bool:
    """Whether a child would find a package, which does not look in the current directory."""
    if package in ("builtins", "__main__"):
        return False
    here = Path.cwd()
    places = [place for place in sys.path if place and Path(place).absolute() != here]
    return PathFinder.find_spec(package, places) is not None
