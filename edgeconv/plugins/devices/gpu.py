"""The runtime `gpu`: LiteRT's GPU delegate, on a GPU with a Vulkan driver or on SwiftShader.

SwiftShader computes on the processor what a GPU would: the delegate's program is run for real, with
its answers, but neither a GPU's times nor its 16-bit floats. What the delegate does not take runs
on the processor. A model may end the process.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgeconv.runtimes.conversation import VulkanDrivers
from edgeconv.runtimes.interface import Delegated, RuntimeSettings
from edgeconv.runtimes.kinds.python import refuse_settings
from edgeconv.runtimes.local import LocalRuntime, RuntimePython, runner_of
from edgeconv.types import RuntimeChoice
from edgeconv.types.errors import ToolFailed, UsageError

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
            _, gpu = runner_of(target, settings).probe()
        except ToolFailed as error:
            failed = failed or error
            settings.on_progress(f"{drivers.files}: {error.message}")
        else:
            assert gpu is not None, "models run in the delegate"
            return target, gpu
    assert failed is not None
    raise ToolFailed(
        f"the GPU delegate does not work with any Vulkan driver here: {failed.message}",
        hint="install another driver, or Debian's chromium, which has SwiftShader",
    )


# The Vulkan drivers of this machine, and SwiftShader, which needs no GPU.

# Where browsers have their files, in addition to the directory of the program.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BESIDE = (
    *("/usr/lib/chromium", "/usr/lib/chromium-browser", "/usr/lib64/chromium-browser"),
    *("/opt/google/chrome", "/opt/chromium.org/chromium"),
    "/snap/chromium/current/usr/lib/chromium",
)
_SWIFTSHADER = "vk_swiftshader_icd.json"
_LOADER = "libvulkan.so.1"
# As the loader of Vulkan reads them: the newer name first.
_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_DRIVERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
# Mesa's, on the processor: LiteRT's delegate does not work with it.
_ON_PROCESSOR = "lvp_"
_DEVICES = ("dri/renderD*", "nvidia0", "dxg")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib")
_INSTALL = (
    "install SwiftShader with Debian's chromium (apt-get install chromium), or name a driver's "
    f"description file with {_VARIABLES[0]}=/usr/share/vulkan/icd.d/NAME.json"
)


def vulkan_drivers() -> tuple[VulkanDrivers, ...]:
    """Those to try, in their order: named by the environment, else of a GPU, else SwiftShader.

    Raises `UsageError` if there are none.
    """
    browsers = list(_browser_directories())
    loader = _loader(browsers)
    named = next(filter(None, (os.environ.get(name, "") for name in _VARIABLES)), "")
    if named:
        for file in named.split(os.pathsep):
            if not Path(file).is_file():
                raise UsageError(
                    f"{_VARIABLES[0]} names {file}, which is not a file",
                    hint="unset it, or name a Vulkan driver's description file",
                )
        return (VulkanDrivers(files=named, loader=loader, has_device=has_device()),)
    drivers = []
    files = [str(file) for directory in _DRIVERS for file in sorted(Path(directory).glob("*.json"))]
    files = [file for file in files if not Path(file).name.startswith(_ON_PROCESSOR)]
    if files and has_device():
        joined = os.pathsep.join(files)
        drivers.append(VulkanDrivers(files=joined, loader=loader, has_device=True))
    description = next(filter(Path.is_file, (each / _SWIFTSHADER for each in browsers)), None)
    if description:
        drivers.append(VulkanDrivers(files=str(description), loader=loader))
    if not drivers:
        raise UsageError(
            "the GPU delegate needs Vulkan, and there is neither a GPU with a driver nor "
            "SwiftShader here",
            hint=_INSTALL,
        )
    return tuple(drivers)


def _browser_directories() -> Iterator[Path]:
    for name in _BROWSERS:
        program = shutil.which(name)
        if program:
            yield Path(program).resolve().parent
    yield from map(Path, _BESIDE)


def _loader(browsers: list[Path]) -> str:
    """The system's loader as "", or a browser's."""
    # Debian has it in a directory with the name of the processor.
    patterns = (_LOADER, f"*-linux-gnu*/{_LOADER}")
    if any(next(Path(each).glob(pattern), None) for each in _SYSTEM for pattern in patterns):
        return ""
    return next((str(b / _LOADER) for b in browsers if (b / _LOADER).is_file()), "")


def has_device() -> bool:
    """Whether this machine has the device file of a GPU."""
    return any(next(Path("/dev").glob(each), None) for each in _DEVICES)
