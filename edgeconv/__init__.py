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
    from edgeconv.source import load
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
    from edgeconv.verbs import Verb

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

__version__ = "0.1.0"
_FUNCTIONS = {
    "load": "edgeconv.source",
    "qat": "edgeconv.conversion.in_memory",
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
    types = import_module("edgeconv.types")
    return sorted({*globals(), *__all__, *_requests(), *types.__all__})


def _requests() -> dict[str, str]:
    """The modules of the types of arguments that are not in `edgeconv.types`."""
    from edgeconv.requests.table import VERBS

    pairs = (entry.request.split(":") for entry in VERBS.values())
    return {name: module for module, name in pairs} | {
        "ExecutionOverrides": "edgeconv.requests.shared"
    }


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    if name in __all__:
        from edgeconv.verbs import Verb

        return globals().setdefault(name, Verb(name))
    if name[:1].isupper():
        if name in (types := import_module("edgeconv.types")).__all__:
            return getattr(types, name)
        if module := _requests().get(name):
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'edgeconv' has no attribute {name!r}")
