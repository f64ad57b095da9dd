"""The runtime `gpu`: LiteRT's GPU delegate, on a GPU with a Vulkan driver or on SwiftShader.

SwiftShader computes on the processor what a GPU would: the delegate's program is run for real, with
its answers, but neither a GPU's times nor its 16-bit floats. What the delegate does not take runs
on the processor. A model may end the process.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from edgeconv.runtimes.interface import Delegated, Model, RuntimeSettings
from edgeconv.runtimes.isolated import relu_model
from edgeconv.runtimes.kinds.python import refuse_settings
from edgeconv.runtimes.local import LocalRuntime, RuntimePython
from edgeconv.runtimes.vulkan import vulkan_drivers
from edgeconv.types import RuntimeChoice
from edgeconv.types.errors import ToolFailed

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


def gpu_target(settings: RuntimeSettings) -> tuple[RuntimePython, Delegated]:
    """The Python with the first drivers that a model runs on, and the device.

    Raises `UsageError` if no driver is installed, and `ToolFailed` where none works.
    """
    failed: ToolFailed | None = None
    for drivers in vulkan_drivers():
        target = RuntimePython(gpu=drivers)
        try:
            return target, _probed(target, settings)
        except ToolFailed as error:
            failed = failed or error
            settings.on_progress(f"{drivers.files}: {error.message}")
    assert failed is not None
    raise ToolFailed(
        f"the GPU delegate does not work with any Vulkan driver here: {failed.message}",
        hint="install another driver, or Debian's chromium, which has SwiftShader",
    )


def _probed(target: RuntimePython, settings: RuntimeSettings) -> Delegated:
    """Run a model there. Raises `ToolFailed`.

    A driver may be found, and fail with the first model.
    """
    with tempfile.TemporaryDirectory(dir=settings.scratch) as scratch:
        file = Path(scratch) / "relu.tflite"
        file.write_bytes(relu_model())
        runtime = LocalRuntime(target, msgspec.structs.replace(settings, reads=()))
        session = runtime.start(Model(file=file))
        try:
            outputs = session.run({"x": np.array([[-3.0, 2.5]], np.float32)})
        finally:
            session.close()
    if session.gpu is None or not np.array_equal(outputs["y"], [[0.0, 2.5]]):
        raise ToolFailed("it computes a wrong RELU")
    return session.gpu
