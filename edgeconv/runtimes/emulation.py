"""Arm runtimes on this machine: Debian's Python and PyPI's wheels under QEMU's user mode.

A root is a directory with the files of another processor. Nothing in it runs while it is made.
"""

import platform
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import sha256_file
from edgeconv.types.errors import PackageMissing, ToolFailed, UsageError

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


# Programs of another processor, from Debian's packages, without touching the user's system.
# apt works with a separate state, cache and list of sources. It checks the signature of the
# index by Debian's keyring, and each package by the SHA-256 in that index.

_RELEASE, _MIRROR = "bookworm", "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGE_TIMEOUT_S = 600.0
_HINT = (
    "it needs apt, dpkg and Debian's keyring: apt-get install apt dpkg debian-archive-keyring; and "
    "a mirror that can be reached"
)


def unpack_packages(
    names: Sequence[str], architecture: str, root: Path, scratch: Path
) -> dict[str, str]:
    """Unpack Debian's packages, and all that they depend on, into `root`.

    Returns the SHA-256 of each by the name of its file. Raises `PackageMissing` where this machine
    has not the programs, and `ToolFailed` where a package cannot be had.
    """
    absent = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if absent or not _KEYRING.is_file():
        what = " and ".join([*absent, *([] if _KEYRING.is_file() else [str(_KEYRING)])])
        raise PackageMissing(f"{what} is missing, which unpacks Debian's packages", hint=_HINT)
    settings = _settings(architecture, scratch)
    _run([*settings, "update"], scratch)
    _run(
        [*settings, "-y", "--no-install-recommends", "--download-only", "install", *names], scratch
    )
    files = sorted((scratch / "cache" / "archives").glob("*.deb"))
    for file in files:
        _run(["dpkg-deb", "-x", str(file), str(root)], scratch)
    return {file.name: sha256_file(file) for file in files}


def _settings(architecture: str, scratch: Path) -> list[str]:
    """apt-get with all its state below `scratch`."""
    state, cache, sources = scratch / "state", scratch / "cache", scratch / "sources.list"
    for directory in (state / "lists" / "partial", cache / "archives" / "partial"):
        directory.mkdir(parents=True)
    (state / "status").touch()
    sources.write_text(f"deb [signed-by={_KEYRING}] {_MIRROR} {_RELEASE} main\n", encoding="utf-8")
    options = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": cache,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": architecture,
        "APT::Architectures::": architecture,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    return ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]


def _run(command: Sequence[str], scratch: Path) -> None:
    _, failure = run_program(
        command, label="unpacking Debian's packages", cwd=scratch, timeout_s=_PACKAGE_TIMEOUT_S
    )
    if failure is not None:
        raise ToolFailed(failure.message, hint=_HINT) from failure
