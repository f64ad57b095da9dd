"""The kernels of devices on this machine, in separate environments: the answers, not the times.

`arm64` is LiteRT of a version on an Arm processor that QEMU emulates, `armv7` tflite-runtime there,
which has the last wheels for 32 bits.

`tflite-micro` is TensorFlow Lite for Microcontrollers. Its package on PyPI has the interpreter with
the reference kernels, compiled for this processor. It says what a model takes of its arena in a
64-bit build, which is more than in a 32-bit one.
"""

import contextlib
import math
from collections.abc import Iterator

from edgeconv.runtimes.choice import default_target, target_runtime
from edgeconv.runtimes.emulation import MACHINES, USUAL_SAMPLES, emulator
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.kinds.python import refuse_settings
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types import RuntimeChoice

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
HAS_VERSIONS = True
HAS_LOCATION = False
COMPARES_WITH = {"interpreter": "litert"}
MOST_SAMPLES = dict.fromkeys(MACHINES, USUAL_SAMPLES)
# Some loops never end in the kernels of tflite-micro. A model of 4 G multiplications takes a
# minute.
_ONCE_S = {"tflite-micro": 300.0}


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime of the version that `choice` names, or of the usual one.

    Raises `UsageError` without QEMU and for settings that it does not have, and as
    `isolated_target`.
    """
    name, version = choice.name, choice.version
    if name in MACHINES:
        emulator(name)
    refuse_settings(choice, settings, "has a separate environment and no accelerator")
    target = target_runtime(name, version) if version else default_target(name)
    python = isolated_target(target, settings.on_progress)
    once_s = _ONCE_S.get(name, math.inf)
    yield LocalRuntime(python, settings, has_times=False, once_s=once_s)
