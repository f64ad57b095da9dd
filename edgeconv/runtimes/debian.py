"""Programs of another processor, from Debian's packages, without touching the user's system.

apt works with a separate state, cache and list of sources. It checks the signature of the
index by Debian's keyring, and each package by the SHA-256 in that index.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import PackageMissing, ToolFailed
from edgeconv.processes.workers import run_program
from edgeconv.store import sha256_file

if TYPE_CHECKING:
    from collections.abc import Sequence

_RELEASE, _MIRROR = "bookworm", "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TIMEOUT_S = 600.0
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
        command, label="unpacking Debian's packages", cwd=scratch, timeout_s=_TIMEOUT_S
    )
    if failure is not None:
        raise ToolFailed(failure.message, hint=_HINT) from failure
