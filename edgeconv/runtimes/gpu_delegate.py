"""LiteRT's GPU delegate for runner.py, in the same directory: needs only ai_edge_litert.

The delegate computes with WebGPU on Vulkan. It only prints which part of a graph
it takes, and why it leaves the rest, so that is read from the process's own log.
"""

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ADAPTER = re.compile(r"Selected adapter: (.+?), arch=.*?adapterType=([^\n]+)")
_LEFT = re.compile(r"not supported by GPU delegate:\n((?:\w+: [^\n]*\n)+)")
_COUNTS = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+)")
# What says why a model is refused, and what names the operator.
_REASON = re.compile(r"^(?:ERROR: |[EW]\d{4} [^]]*\] )(.+)$", re.MULTILINE)
_USUAL = ("dlopen", "could not be loaded", "Failed to load plugin", "buffer requirements")
_SOFTWARE = "CPU"
_ERRORS, _LOG = 2, Path("/dev/fd/2")
_MOST_CHARACTERS = 600


def compiled(path: str, drivers: dict[str, Any], cpu_options: Any) -> tuple[Any, dict[str, Any]]:
    """A CompiledModel on the GPU, with the processor for what the delegate leaves; and facts.

    `drivers` has "loader", the library of the Vulkan loader ("" is the system's), and "files", the
    descriptions of drivers ("" are those that the loader finds itself). The facts are "device",
    "is_software", "on_gpu" and "on_cpu", the operators of each, None where all are on the GPU, and
    "left", a line for each operator that the delegate does not support. Raises `RuntimeError` with
    what it printed.
    """
    if drivers["files"]:
        os.environ.update(VK_DRIVER_FILES=drivers["files"], VK_ICD_FILENAMES=drivers["files"])
    if drivers["loader"]:
        # Later the delegate opens it by its name alone, and gets this one.
        ctypes.CDLL(drivers["loader"])
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import GpuOptions, Options

    options = Options(
        hardware_accelerators=HardwareAccelerator.GPU | HardwareAccelerator.CPU,
        cpu_options=cpu_options,
        gpu_options=GpuOptions(),
    )
    with printed() as text:
        try:
            model = CompiledModel.from_file(path, options=options)
        except RuntimeError as error:
            raise RuntimeError(reasons(text()) or str(error)) from None
    return model, facts(text(), is_full=model.is_fully_accelerated())


def facts(text: str, *, is_full: bool) -> dict[str, Any]:
    """What the delegate printed about its device and the operators that it left."""
    adapter, counts, left = _ADAPTER.search(text), _COUNTS.search(text), _LEFT.search(text)
    return {
        "device": adapter.group(1) if adapter else "",
        "is_software": adapter is not None and adapter.group(2).startswith(_SOFTWARE),
        "is_full": is_full,
        "on_gpu": int(counts.group(1)) if counts else None,
        "on_cpu": int(counts.group(2)) if counts else None,
        "left": left.group(1).splitlines() if left else [],
    }


def reasons(text: str) -> str:
    """The lines that say why a model is refused, in one."""
    lines = [each for each in _REASON.findall(text) if not any(word in each for word in _USUAL)]
    return "; ".join(dict.fromkeys(lines))[:_MOST_CHARACTERS]


@contextlib.contextmanager
def printed() -> Iterator[Callable[[], str]]:
    """What this process prints meanwhile, where its errors go to a file; else nothing."""
    before = os.fstat(_ERRORS).st_size

    def text() -> str:
        with contextlib.suppress(OSError), _LOG.open("rb") as file:
            file.seek(before)
            return file.read().decode("utf-8", "replace")
        return ""

    yield text
