"""The runtime `tflite-micro`: TensorFlow Lite for Microcontrollers, in a separate environment.

Its package on PyPI has the interpreter with the reference kernels, compiled for this processor: a
microcontroller's answers, but neither its times nor its memory in use. It says what a model takes
of its arena in a 64-bit build, which is more than in a 32-bit one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.runtimes.choice import default_target, target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import LocalRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.runtimes.interface import RuntimeSettings
    from edgeconv.types import RuntimeChoice

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
HAS_VERSIONS = True
HAS_LOCATION = False


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime of the version that `choice` names, or of ours.

    Raises `UsageError` for settings that it does not have, and as `isolated_target` does.
    """
    if settings.accelerator != "interpreter" or settings.python:
        named = f"--python {settings.python}" if settings.python else "--accelerator"
        raise UsageError(
            f"{choice.name} has a separate environment and no accelerator, and {named} is given",
            hint=f"remove {named.partition(' ')[0]}",
        )
    if choice.version:
        target = target_runtime(choice.name, choice.version)
    else:
        target = default_target(choice.name)
    yield LocalRuntime(isolated_target(target, settings.on_progress), settings, has_times=False)
