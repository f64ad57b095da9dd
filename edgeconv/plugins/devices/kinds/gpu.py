"""The runtime `gpu`: LiteRT's GPU delegate, on a GPU with a Vulkan driver or on SwiftShader.

SwiftShader computes on the processor what a GPU would: the delegate's program is run for real, with
its answers, but neither a GPU's times nor its 16-bit floats. What the delegate does not take runs
on the processor. A model may end the process.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.plugins.devices.gpu import gpu_target
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.runtimes.untimed import refuse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.runtimes.interface import RuntimeSettings
    from edgeconv.types import RuntimeChoice

# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True
HAS_LOCATION = False
COMPARES_WITH = {"interpreter": "litert"}


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[LocalRuntime]:
    """The runtime, once a model has run there.

    Raises `UsageError` if no driver is installed, and for settings that it does not have;
    `ToolFailed` where none works.
    """
    refuse_settings(choice, settings, "is the GPU delegate of this environment's LiteRT")
    target, gpu = gpu_target(settings)
    yield LocalRuntime(target, settings, has_times=not gpu.is_software, gpu=gpu.device)
