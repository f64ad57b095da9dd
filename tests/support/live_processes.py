"""Whether a process is alive, and waiting for what it does."""

import time
from collections.abc import Callable
from typing import Any

import psutil

DEADLINE_S = 120.0


def alive(pid: int) -> bool:
    """Whether it runs: one that has ended is not alive, even where nobody has waited for it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {DEADLINE_S:g} s"
        time.sleep(0.01)
