"""The names of target runtimes: `litert`, `litert==2.1.0`, `tflite-runtime==2.14.0`."""

from __future__ import annotations

import re

from edgeconv.errors import UsageError, unknown_name
from edgeconv.types import TargetRuntime

# What a name without a version means; tflite-runtime has no release after 2.14, and later
# releases of TensorFlow for Python cannot run Select-TF operators in its interpreter.
_DEFAULT_VERSION = {"litert": "", "tensorflow": "2.15.1", "tflite-runtime": "2.14.0"}
_VERSION = re.compile(r"(\d+\.\d+)(\.\d+)?((?:a|b|rc|\.post)\d+)?")


def parse_target_runtime(text: str) -> TargetRuntime:
    """The runtime that `text` names. Raises `UsageError` for another name or a bad version."""
    name, separator, version = (part.strip() for part in text.partition("=="))
    if name not in _DEFAULT_VERSION:
        raise unknown_name("target runtime", name, _DEFAULT_VERSION)
    if not separator:
        version = _DEFAULT_VERSION[name]
    elif not (match := _VERSION.fullmatch(version)):
        raise UsageError(
            f"target runtime {text!r} has no version after ==",
            hint=f"as in {name}==2.14.0, or {name} alone",
        )
    else:
        version = f"{match[1]}{match[2] or '.0'}{match[3] or ''}"
    return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]


def runtime_text(runtime: TargetRuntime) -> str:
    """The text that `parse_target_runtime` reads back as `runtime`."""
    return f"{runtime.name}=={runtime.version}" if runtime.version else runtime.name
