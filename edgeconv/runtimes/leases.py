"""Devices have one user at a time: their times are wrong otherwise, and their memory is small."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from edgeconv.system.store import cache_directory, hash_of, locked, writable_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edgeconv.types import RuntimeChoice

_DEVICES = frozenset({"adb", "ssh"})
_DIGITS = 16


def is_device(choice: RuntimeChoice) -> bool:
    """Whether a runtime is on a device, which one machine leases."""
    return choice.name in _DEVICES


def device_name(choice: RuntimeChoice) -> str:
    """What tells a device from others: `ssh:pi@host`, `adb:SERIAL`; "" for what is not one."""
    return f"{choice.name}:{choice.location}" if is_device(choice) else ""


@contextlib.contextmanager
def leased(choices: Iterable[RuntimeChoice], on_progress: Callable[[str], None]) -> Iterator[None]:
    """A block in which no other run of this machine's user has the devices among `choices`.

    It waits for one that does. Raises `OutputRefused` if the locks cannot be made.
    """
    # In one order for all, so that no two wait for each other.
    names = sorted({device_name(choice) for choice in choices} - {""})
    with contextlib.ExitStack() as stack:
        for name in names:
            lock = cache_directory() / "devices" / f"{hash_of(name)[:_DIGITS]}.lock"
            writable_directory(lock.parent)
            waiting = functools.partial(on_progress, f"waiting for another run on {name}")
            stack.enter_context(locked(lock, on_wait=waiting))
        yield
