"""edgeconv: a trained model in, a verified set of .tflite files out.

The verbs are functions; they print nothing and never exit. A verb takes the words of its command.
Nothing heavy is imported before a verb, or a type of its arguments or results, is first used.
Editors read __init__.pyi.
"""

from importlib import import_module
from typing import Any

_ELSEWHERE = {
    "EdgeconvError": "edgeconv.types.errors:EdgeconvError",
    "__version__": "edgeconv.types.version:VERSION",
    "load": "edgeconv.model.source:load",
}
__all__ = [
    "bench",
    "build",
    "check",
    "compare",
    "convert",
    "debug",
    "doctor",
    "embed",
    "inspect",
    "load",
    "qat",
    "report",
    "scan",
    "sweep",
    "train",
    "tune",
    "verify",
]


def __dir__() -> list[str]:
    """The verbs, and the values that they take and give."""
    return sorted({*_ELSEWHERE, *__all__, *_values()})


def _values() -> dict[str, Any]:
    from msgspec import Struct

    types = vars(import_module("edgeconv.types")).items()
    return {
        name: value
        for name, value in types
        if isinstance(value, type) and issubclass(value, Struct) and value.__struct_fields__
    }


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        path, _, attribute = _ELSEWHERE[name].partition(":")
        return getattr(import_module(path), attribute)
    if name in __all__:
        from edgeconv.requests.table import Verb

        return globals().setdefault(name, Verb(name))
    if name[:1].isupper() and name in (values := _values()):
        return values[name]
    raise AttributeError(f"module 'edgeconv' has no attribute {name!r}")
