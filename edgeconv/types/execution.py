"""How to run, which changes no result: threads, limits of the children, the cache."""

from __future__ import annotations

import msgspec

DEFAULT_TIMEOUT_S = 3600.0


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may use: wall-clock seconds, and resident bytes (0: no limit)."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How to run, which changes no result: threads, what a child may use, the cache.

    `allow_code`: a SOURCE may name a function of the user's, which runs in a child. `trusted` are
    the content hashes of models that are loaded although the scan refuses them.
    """

    threads: int = 2
    allowance: Allowance = Allowance()
    use_cache: bool = True
    allow_code: bool = False
    trusted: tuple[str, ...] = ()
