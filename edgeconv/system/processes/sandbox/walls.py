"""How this machine confines children, and whether it must."""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import msgspec

from edgeconv.types.errors import SandboxMissing
from edgeconv.types.execution import SandboxMode

WallKind = Literal["landlock", "bubblewrap", "none"]

_PROBE_TIMEOUT_S = 10.0
_HINT = (
    "run it on Linux 6.2 or later, in a container that allows Landlock and seccomp, or "
    "install bubblewrap; --sandbox auto continues without a sandbox"
)


class Wall(msgspec.Struct, frozen=True, kw_only=True):
    """What confines children. `reason`: why it is not something better."""

    kind: WallKind
    version: int = 0
    filters: bool = False
    program: str = ""
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether files, the network and system calls are all restricted."""
        return self.kind != "none" and self.filters

    def __str__(self) -> str:
        if self.kind == "none":
            return f"none: {self.reason}"
        name = f"Landlock {self.version}" if self.kind == "landlock" else "bubblewrap"
        return f"{name} and seccomp" if self.filters else f"{name}, without seccomp"


_mode: SandboxMode = "auto"
_warned: set[str] = set()


@contextlib.contextmanager
def using(mode: SandboxMode) -> Iterator[None]:
    """Set for the block, in all threads, whether children of this process must be confined.

    "auto" without a sandbox, and "off", warn once on the log `edgeconv`. Raises `SandboxMissing`
    for "required" without one.
    """
    global _mode
    before = _mode
    _mode = mode
    try:
        wall()
        yield
    finally:
        _mode = before


def sandbox_mode() -> SandboxMode:
    """Whether children of this process must be confined, as `using` set it."""
    return _mode


def is_required() -> bool:
    """Whether a child that cannot be confined must not run."""
    return _mode == "required"


def warn_once(text: str) -> None:
    """Warn the user, once for each text."""
    if text not in _warned:
        _warned.add(text)
        # Without a handler it goes to stderr.
        logging.getLogger("edgeconv").warning("%s", text)


def wall() -> Wall:
    """What confines the next child. Raises `SandboxMissing` if one is required."""
    if _mode == "off":
        warn_once("--sandbox off: models and data are read without a sandbox")
        return Wall(kind="none", reason="--sandbox off")
    best = available()
    if best.is_whole:
        return best
    if is_required():
        raise SandboxMissing(f"there is no complete sandbox here: {best.reason}", hint=_HINT)
    warn_once(f"no complete sandbox here ({best.reason}): only the scan protects from models")
    return best


@functools.cache
def available() -> Wall:
    """The best that this machine has, determined once."""
    if sys.platform != "linux":
        return Wall(kind="none", reason=f"{sys.platform} is not Linux")
    from edgeconv.system.processes.sandbox.enter import (
        LEAST_LANDLOCK,
        filters_calls,
        landlock_version,
    )

    version, filters = landlock_version(), filters_calls()
    no_filter = "" if filters else "the kernel does not filter system calls"
    if version >= LEAST_LANDLOCK:
        return Wall(kind="landlock", version=version, filters=filters, reason=no_filter)
    old = f"Landlock {version} is too old" if version else "the kernel has no Landlock"
    program = shutil.which("bwrap")
    if program is None:
        return Wall(kind="none", filters=filters, reason=f"{old}, and there is no bubblewrap")
    if reason := _bubblewrap_fails(program):
        return Wall(kind="none", filters=filters, reason=f"{old}, and bubblewrap fails: {reason}")
    return Wall(kind="bubblewrap", filters=filters, program=program, reason=no_filter)


def _bubblewrap_fails(program: str) -> str:
    """Why it cannot make namespaces here; "" if it can."""
    words = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    try:
        result = subprocess.run(
            [*words, "true"],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
            env={"PATH": "/usr/bin:/bin"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (result.stderr.strip()[:200] or "it failed") if result.returncode else ""
