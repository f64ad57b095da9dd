"""The runtime `tflite-micro`: TensorFlow Lite for Microcontrollers, in a separate environment.

Its package on PyPI has the interpreter with the reference kernels, compiled for this processor: a
microcontroller's answers, but neither its times nor its memory in use. It says what a model takes
of its arena in a 64-bit build, which is more than in a 32-bit one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.kinds.python import untimed_runtime
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types import RuntimeChoice

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
HAS_VERSIONS = True
HAS_LOCATION = False
COMPARES_WITH = {"interpreter": "litert"}
# Some loops never end in these kernels. A model of 4 G multiplications takes a minute.
_ONCE_S = 300.0


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime of the version that `choice` names, or of ours.

    Raises as `untimed_runtime` does.
    """
    yield untimed_runtime(choice, settings, _ONCE_S)
