"""The runtimes `arm64` and `armv7`: the kernels of an Arm processor, emulated by QEMU.

`arm64` is LiteRT of a version, `armv7` tflite-runtime, which has the last wheels for 32 bits. The
outputs are those of the kernels that a device runs; the times are not, and they are long.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError
from edgeconv.runtimes.choice import default_target, target_runtime
from edgeconv.runtimes.emulation import USUAL_SAMPLES, emulator
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
COMPARES_WITH = {"interpreter": "litert"}
MOST_SAMPLES = USUAL_SAMPLES


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime of the version that `choice` names, or of the usual one.

    Raises `UsageError` for settings that it does not have and without QEMU, and as
    `isolated_target` does.
    """
    if settings.accelerator != "interpreter" or settings.python:
        named = f"--python {settings.python}" if settings.python else "--accelerator"
        raise UsageError(
            f"{choice.name} has a separate environment and no accelerator, and {named} is given",
            hint=f"remove {named.partition(' ')[0]}",
        )
    emulator(choice.name)
    if choice.version:
        target = target_runtime(choice.name, choice.version)
    else:
        target = default_target(choice.name)
    yield LocalRuntime(isolated_target(target, settings.on_progress), settings, has_times=False)
