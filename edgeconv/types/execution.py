"""How to run, which changes no result: threads, limits of the children, the cache."""

import os
import sys
from typing import Literal

import msgspec

DEFAULT_TIMEOUT_S = 3600.0
# Whether children are confined: where that is possible, always (or not started), or never.
SandboxMode = Literal["auto", "required", "off"]


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may use: wall-clock seconds, and resident bytes (0: no limit)."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0


def usable_cores() -> int:
    """How many cores this process may use: those of the machine, or fewer, as in a batch job."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How to run, which changes no result: threads (one a core), limits of children, the cache.

    `allow_code`: a SOURCE may name a function of the user's, which runs in a child. `trusted` are
    the content hashes of models that are loaded although the scan refuses them.
    """

    threads: int = msgspec.field(default_factory=usable_cores)
    allowance: Allowance = Allowance()
    use_cache: bool = True
    allow_code: bool = False
    trusted: tuple[str, ...] = ()
