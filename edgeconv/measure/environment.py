"""The machine that a measurement belongs to."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from edgeconv.store import tool_versions
from edgeconv.types import Environment


def environment() -> Environment:
    """This machine, and the versions of the tools on it."""
    return Environment(
        machine=platform.machine(),
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        tools=tool_versions(),
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or "unknown"
