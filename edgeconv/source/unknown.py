"""The classes and functions in the configuration of a Keras file that are not Keras's own."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.source.keras_names import KERAS_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

_KERAS = frozenset({"keras", "tf_keras"})
# Keras imports them where they are installed.
_FAMILY = frozenset({"keras_hub", "keras_cv", "keras_nlp"})
# Names that are neither classes nor functions of a user.
_PLAIN = frozenset({"Policy", "PolicyV1", "TypeSpec", "TensorShape", "CompositeTensor"})
# No loader of edgeconv reads these parts: a model is opened without its optimizer and losses.
_NOT_READ = frozenset({"compile_config", "build_config"})
_ACTIVATIONS = frozenset({"activation", "recurrent_activation"})
_FUNCTION = "function"


def unknown_classes(config: dict[str, Any], *, imports_any: bool = False) -> tuple[str, ...]:
    """The names of classes and functions in `config` that neither Keras 3 nor tf_keras has.

    A registered one is written PACKAGE>NAME. `imports_any`: the loader imports any installed
    module, as that of tf_keras for .keras files does.
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
    """The name of the class or function of a serialized object, if Keras does not have it."""
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
    """Whether a child, which does not search the current directory, finds a package."""
    if package in ("builtins", "__main__"):
        return False
    here = Path.cwd()
    paths = [path for path in sys.path if path and Path(path).absolute() != here]
    return PathFinder.find_spec(package, paths) is not None
