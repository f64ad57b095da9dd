"""The Vulkan drivers of this machine, and SwiftShader, which needs no GPU.

SwiftShader computes what a GPU would on the processor. Chromium and Chrome bring it, with a loader
of Vulkan's drivers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeconv.types.errors import UsageError

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
_DRIVERS = (
    "/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
)
# Mesa's, on the processor: LiteRT's delegate does not work with it.
_ON_PROCESSOR = "lvp_"
_DEVICES = ("dri/renderD*", "nvidia0", "dxg")
_SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib")
_INSTALL = (
    "install SwiftShader with Debian's chromium (apt-get install chromium), or name a driver's "
    f"description file with {_VARIABLES[0]}=/usr/share/vulkan/icd.d/NAME.json"
)


class VulkanDrivers(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptions of drivers, and the library that loads them.

    `files` are as `VK_DRIVER_FILES` has them, "" for those that the loader finds; `loader` is ""
    for the system's. `has_device`: whether they may be a real GPU's.
    """

    files: str = ""
    loader: str = ""
    has_device: bool = False

    def reads(self) -> tuple[Path, ...]:
        """The directories of the named files."""
        named = [Path(each) for each in (*self.files.split(os.pathsep), self.loader) if each]
        return tuple(dict.fromkeys(file.parent.absolute() for file in named))


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
