"""Whether a process is alive."""

from __future__ import annotations

import psutil


def alive(pid: int) -> bool:
    """Whether it runs: one that has ended is not alive, even where nobody has waited for it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
