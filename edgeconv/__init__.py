"""edgeconv: a trained model in, a judged set of .tflite files out.

The verbs are functions from noun to noun; they print nothing and never exit.
Nothing heavy is imported until a verb is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.conversion.in_memory import qat
    from edgeconv.evidence import verify
    from edgeconv.gate.budget import check
    from edgeconv.measure.bench import bench
    from edgeconv.measure.compare import compare
    from edgeconv.measure.doctoring.doctor import doctor
    from edgeconv.measure.insides.debug import debug
    from edgeconv.scanning import scan
    from edgeconv.source import inspect_model, load
    from edgeconv.training.baseline import train
    from edgeconv.tuning.flow import tune
    from edgeconv.types import Conversion
    from edgeconv.verbs import Verb

    convert: Verb[Conversion]

__version__ = "0.1.0"
__all__ = [
    "bench",
    "check",
    "compare",
    "convert",
    "debug",
    "doctor",
    "inspect_model",
    "load",
    "qat",
    "scan",
    "train",
    "tune",
    "verify",
]

_VERBS = {
    "bench": "edgeconv.measure.bench",
    "check": "edgeconv.gate.budget",
    "compare": "edgeconv.measure.compare",
    "debug": "edgeconv.measure.insides.debug",
    "doctor": "edgeconv.measure.doctoring.doctor",
    "inspect_model": "edgeconv.source",
    "load": "edgeconv.source",
    "qat": "edgeconv.conversion.in_memory",
    "scan": "edgeconv.scanning",
    "train": "edgeconv.training.baseline",
    "tune": "edgeconv.tuning.flow",
    "verify": "edgeconv.evidence",
}


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def __getattr__(name: str) -> Any:
    if name in ("convert",):
        from edgeconv.verbs import Verb

        return globals().setdefault(name, Verb(name))
    if name not in _VERBS:
        raise AttributeError(f"module 'edgeconv' has no attribute {name!r}")
    return getattr(import_module(_VERBS[name]), name)
