"""The runtimes `arm64` and `armv7`: the kernels of an Arm processor, emulated by QEMU.

`arm64` is LiteRT of a version, `armv7` tflite-runtime, which has the last wheels for 32 bits. The
outputs are what a device's kernels give; the times are not a device's, and they are long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from edgeconv.runtimes.emulation import USUAL_SAMPLES, emulator
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.kinds.python import untimed_runtime
from edgeconv.runtimes.local import LocalRuntime
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

    Raises `UsageError` without QEMU, and as `untimed_runtime` does.
    """
    emulator(choice.name)
    yield untimed_runtime(choice, settings)
