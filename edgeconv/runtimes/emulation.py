"""Arm runtimes on this machine: Debian's Python and PyPI's wheels under QEMU's user mode.

A root is a directory with the files of another processor. Nothing in it runs while it is made.
"""

from __future__ import annotations

import platform
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import PackageMissing, ToolFailed, UsageError
from edgeconv.processes.workers import run_program
from edgeconv.runtimes.debian import unpack_packages
from edgeconv.store import sha256_file

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = Path(__file__).with_name("emulated.py")
PYTHON = (3, 11)
# A bench takes no more samples where their number is not chosen: int8 is 20 to 60 times slower than
# on this processor, float32 over 100 times.
USUAL_SAMPLES = 200
_TIMEOUT_S = 900.0
_CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {part}
CPU revision\t: 1

"""


class ArmMachine(NamedTuple):
    """A processor that QEMU emulates, and where its programs come from.

    `debian` is its name there, with the `packages` that make a Python; `wheels` are the platforms
    of pip, and `numpy` the requirement for it, "" where Debian's is taken, as PyPI has no wheel.
    """

    qemu: str
    debian: str
    packages: tuple[str, ...]
    wheels: tuple[str, ...]
    numpy: str
    cpuinfo: str


_PYTHON = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6", "zlib1g")
MACHINES = {
    "arm64": ArmMachine(
        "qemu-aarch64-static",
        "arm64",
        _PYTHON,
        ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_34_aarch64"),
        "numpy<2.3",
        _CPUINFO.format(
            features="fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid "
            "asimdrdm asimddp",
            part="0xd0c",
        ),
    ),
    "armv7": ArmMachine(
        "qemu-arm-static",
        "armhf",
        (*_PYTHON, "python3-numpy"),
        ("manylinux2014_armv7l", "manylinux_2_31_armv7l", "manylinux_2_34_armv7l"),
        "",
        _CPUINFO.format(
            features="half thumb fastmult vfp edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32 lpae",
            part="0xd08",
        ),
    ),
}


def emulator(name: str) -> Path:
    """QEMU for the runtime `name`. Raises `UsageError` where this machine has it not."""
    machine = MACHINES[name]
    path = shutil.which(machine.qemu)
    if sys.platform != "linux" or path is None:
        raise UsageError(
            f"the runtime {name} needs Linux and {machine.qemu}, which is not on the PATH of this "
            f"{platform.system()}",
            hint="apt-get install qemu-user-static",
        )
    return Path(path).resolve()


def fill_root(name: str, requirement: str, root: Path, scratch: Path) -> dict[str, str]:
    """Unpack a Python and the wheel of `requirement` for an Arm machine into the directory `root`.

    Returns the SHA-256 of every package by the name of its file. Raises `UsageError` without QEMU,
    `PackageMissing` and `ToolFailed` where a package cannot be had.
    """
    emulator(name)
    machine = MACHINES[name]
    root.mkdir(parents=True)
    hashes = unpack_packages(machine.packages, machine.debian, root, scratch)
    wheels = _wheels(machine, [requirement, *filter(None, [machine.numpy])], scratch / "wheels")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "packages")
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text(machine.cpuinfo, encoding="ascii")
    return {**hashes, **{wheel.name: sha256_file(wheel) for wheel in wheels}}


def _wheels(machine: ArmMachine, requirements: Sequence[str], directory: Path) -> list[Path]:
    platforms = [text for each in machine.wheels for text in ("--platform", each)]
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", *platforms),
        *("--python-version", "{}.{}".format(*PYTHON), "--dest", str(directory), *requirements),
    ]
    directory.mkdir()
    output, failure = run_program(
        command, label=f"pip download {requirements[0]}", cwd=directory, timeout_s=_TIMEOUT_S
    )
    if failure is not None:
        error_type = PackageMissing if "No matching distribution" in output else ToolFailed
        raise error_type(
            failure.message,
            hint=f"check that the version has a wheel for {machine.debian} and Python 3.11, and "
            "that pip reaches its package index",
        ) from failure
    return sorted(directory.glob("*.whl"))
