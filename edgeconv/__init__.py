"""edgeconv: a trained model in, a verified set of .tflite files out.

The verbs are functions; they print nothing and never exit. A verb takes the fields of its request,
in their order or by name. Nothing heavy is imported before a verb, or a type of its arguments or
results, is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.conversion.in_memory import qat
    from edgeconv.model.source import load
    from edgeconv.types import (
        Built,
        Checked,
        Conversion,
        Debugged,
        Diagnosis,
        Difference,
        Embedded,
        Evidence,
        Inspection,
        Report,
        Scan,
        Swept,
        TrainingRecord,
        Tuning,
    )
    from edgeconv.requests.table import Verb

    __version__: str
    bench: Verb[Report]
    build: Verb[tuple[Built, ...]]
    check: Verb[Checked]
    compare: Verb[Difference]
    convert: Verb[Conversion]
    debug: Verb[Debugged]
    doctor: Verb[Diagnosis]
    embed: Verb[Embedded]
    inspect: Verb[Inspection]
    report: Verb[tuple[Report, ...]]
    scan: Verb[Scan]
    sweep: Verb[Swept]
    train: Verb[TrainingRecord | None]
    tune: Verb[Tuning]
    verify: Verb[Evidence]

_ELSEWHERE = {
    "__version__": "edgeconv.types.version:VERSION",
    "load": "edgeconv.model.source:load",
    "qat": "edgeconv.conversion.in_memory:qat",
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
    types = (name for name in vars(import_module("edgeconv.types")) if name[:1].isupper())
    return sorted({*globals(), *_ELSEWHERE, *__all__, *_requests(), *types})


def _requests() -> dict[str, str]:
    """The modules of the types of arguments that are not in `edgeconv.types`."""
    from edgeconv.requests.table import VERBS

    pairs = (entry.request.split(":") for entry in VERBS.values())
    return {name: module for module, name in pairs} | {
        "ExecutionOverrides": "edgeconv.requests.shared"
    }


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        path, _, attribute = _ELSEWHERE[name].partition(":")
        return getattr(import_module(path), attribute)
    if name in __all__:
        from edgeconv.requests.table import Verb

        return globals().setdefault(name, Verb(name))
    if name[:1].isupper():
        if hasattr(types := import_module("edgeconv.types"), name):
            return getattr(types, name)
        if module := _requests().get(name):
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'edgeconv' has no attribute {name!r}")
