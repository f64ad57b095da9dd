"""The runtime `tensorflow==VERSION`: the .tflite interpreter of that TensorFlow.

It has an environment of its own. `tensorflow` without a version is what the trained model
runs in, and is measured beside the .tflite files without being asked for.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.runtimes.kept import opened_locally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.runtimes.interface import Choice, Settings
    from edgeconv.runtimes.local import LocalRuntime


# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True


@contextlib.contextmanager
def open_runtime(choice: Choice, settings: Settings) -> Iterator[LocalRuntime]:
    """TensorFlow's interpreter. Raises `UsageError`, `ToolFailed` where it is not to be had."""
    if not choice.version and not settings.python:
        raise UsageError(
            "tensorflow without a version runs the trained model, not .tflite files",
            hint="tensorflow==2.15.1, or another version, runs them in its interpreter",
        )
    yield opened_locally("tensorflow", choice, settings)
