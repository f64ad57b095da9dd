"""The Python and the Vulkan driver that LiteRT's GPU delegate works with."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.isolated import relu_model
from edgeconv.runtimes.local import LocalRuntime, RuntimePython
from edgeconv.runtimes.vulkan import vulkan_drivers
from edgeconv.types.errors import ToolFailed

if TYPE_CHECKING:
    from edgeconv.runtimes.interface import Delegated, RuntimeSettings


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
