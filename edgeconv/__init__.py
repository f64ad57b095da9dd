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
    from edgeconv.gate.evidence import verify
    from edgeconv.source import load
    from edgeconv.source.scanning import scan
    from edgeconv.types import (
        Built,
        Checked,
        Conversion,
        Debugged,
        Diagnosis,
        Difference,
        Embedded,
        Inspection,
        Report,
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
    train: Verb[TrainingRecord | None]
    tune: Verb[Tuning]

__version__ = "0.1.0"
_FUNCTIONS = {
    "load": "edgeconv.source",
    "qat": "edgeconv.conversion.in_memory",
    "scan": "edgeconv.source.scanning",
    "verify": "edgeconv.gate.evidence",
}
# Types of arguments that are not in `edgeconv.types`.
_VALUES = {
    "Trust": "edgeconv.gate.evidence",
    "BenchRequest": "edgeconv.requests.bench",
    "BuildRequest": "edgeconv.requests.check",
    "CheckRequest": "edgeconv.requests.check",
    "CompareRequest": "edgeconv.requests.looking",
    "ConvertRequest": "edgeconv.requests.convert",
    "DebugRequest": "edgeconv.requests.looking",
    "DoctorRequest": "edgeconv.requests.looking",
    "EmbedRequest": "edgeconv.requests.embed",
    "InspectRequest": "edgeconv.requests.looking",
    "ReportRequest": "edgeconv.requests.looking",
    "ExecutionOverrides": "edgeconv.requests.shared",
    "TrainRequest": "edgeconv.requests.train",
    "TuneRequest": "edgeconv.requests.tune",
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
    "train",
    "tune",
    "verify",
]


def __dir__() -> list[str]:
    types = import_module("edgeconv.types")
    return sorted({*globals(), *__all__, *_VALUES, *types.__all__})


def __getattr__(name: str) -> Any:
    if name in __all__ and name not in _FUNCTIONS:
        from edgeconv.verbs import Verb

        return globals().setdefault(name, Verb(name))
    for table in (_FUNCTIONS, _VALUES):
        if name in table:
            return getattr(import_module(table[name]), name)
    if name[:1].isupper() and name in (types := import_module("edgeconv.types")).__all__:
        return getattr(types, name)
    raise AttributeError(f"module 'edgeconv' has no attribute {name!r}")
