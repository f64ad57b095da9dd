"""The user's Keras classes and functions, imported in the child that loads a Keras file."""

import inspect
import sys
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from edgeconv.data.code import Blamed, CustomModule, find_custom, users_code
from edgeconv.types import Opening
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

Library = Literal["keras", "tf_keras"]
_NAMES: dict[Library, str] = {"keras": "Keras 3", "tf_keras": "tf_keras"}


def custom_objects(opening: Opening, names: Collection[str]) -> dict[str, Any]:
    """The classes and functions of the modules that `opening` names, by name.

    `names` are the names in the Keras file, PACKAGE>NAME if registered: an object is known by
    that name too. Raises `UsageError` for an unknown name, `InputRefused` for a module that fails.
    """
    objects: dict[str, Any] = {}
    if not opening.custom_objects:
        return {}
    with users_code(opening.directory):
        for text in opening.custom_objects:
            module = find_custom(text, opening.directory)
            objects |= _of_module(module, _imported(module), text)
    registered = {
        name: objects[bare] for name in names if (bare := name.rpartition(">")[2]) in objects
    }
    return objects | registered


def register(opening: Opening) -> None:
    """Register the modules' classes and functions for all loading in this process.

    A class is registered with the Keras that it derives from, a function with the same ones, or
    with Keras 3. Raises as `custom_objects`.
    """
    objects = custom_objects(opening, ())
    if not objects:
        return
    libraries = {library_of(value) for value in objects.values()} - {None} or {"keras"}
    for library in libraries:
        assert library is not None
        known = import_module(library).saving.get_custom_objects()
        known |= {n: value for n, value in objects.items() if library_of(value) in (None, library)}


def library_of(custom: Any) -> Library | None:
    """Which Keras a class derives from; None for other classes and functions."""
    for base in getattr(custom, "__mro__", ()):
        package = base.__module__.split(".")[0]
        if package in _NAMES:
            return "tf_keras" if package == "tf_keras" else "keras"
    return None


def refuse_other_library(
    path: str, library: Library, objects: dict[str, Any], names: Collection[str]
) -> None:
    """Raise `InputRefused` where a class in the file derives from the other Keras."""
    for name in sorted(names):
        derived = library_of(objects.get(name))
        if derived not in (None, library):
            custom = objects[name]
            other = "tf_keras" if library == "tf_keras" else "keras"
            raise InputRefused(
                f"{path} is of {_NAMES[library]}, and {custom.__module__}.{custom.__qualname__} "
                f"derives from a class of {_NAMES[derived or library]}",
                hint=f"derive it from a class of {_NAMES[library]} (import {other}, not "
                "tensorflow.keras), or save the model again with the Keras of the class",
            )


def _imported(custom: CustomModule) -> ModuleType:
    with Blamed(
        f"{custom.module} (imported for --custom-objects)", str(custom.root), code="the module"
    ):
        if str(custom.root) not in sys.path:
            sys.path.insert(0, str(custom.root))
        module = import_module(custom.module)
    if Path(module.__file__ or "").resolve() != custom.file.resolve():
        raise InputRefused(
            f"{custom.file} cannot be imported: {custom.module} is the name of another module, "
            f"{module.__file__ or 'a part of Python'}",
            hint="rename the file",
        )
    return module


def _of_module(custom: CustomModule, module: ModuleType, text: str) -> dict[str, Any]:
    if not custom.name:
        objects = dict(_defined(module))
        if not objects:
            raise UsageError(
                f"--custom-objects {text}: {module.__file__} defines no class and no function",
                hint="name the module that defines the layers of the model",
            )
        return objects
    value: Any = module
    for part in custom.name.split("."):
        if not hasattr(value, part):
            raise unknown_name(f"class in {custom.module}", custom.name, dict(_defined(module)))
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(
            f"--custom-objects {text}: it is a {type(value).__name__}, not a class or a function"
        )
    return {custom.name.rpartition(".")[2]: value}


def _defined(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions that the module or its package defines, by name."""
    package = module.__name__.split(".")[0]
    for value in vars(module).values():
        is_own = getattr(value, "__module__", "").split(".")[0] == package
        if is_own and (inspect.isclass(value) or inspect.isfunction(value)):
            yield value.__name__, value
