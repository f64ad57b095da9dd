"""The search for the other members of a cluster, which answer at their addresses.

TensorFlow waits for members without naming the missing ones. The search is in its own child, since
a name that cannot be resolved may block for many seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import report_progress, start_task
from edgeconv.training.cluster import host_and_port
from edgeconv.types import Allowance
from edgeconv.types.errors import ToolFailed
from edgeconv.types.words import listed

_PAUSE_S = 0.5
_ANSWER_WITHIN_S = 3.0
_NAMED = 8


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The members to look for."""

    addresses: tuple[str, ...]


class Peers:
    """Members of a cluster that have not answered yet; `look` is called until all are connected."""

    def __init__(self, addresses: Mapping[str, str], timeout_s: float, *, scratch: Path) -> None:
        self._missing = {address: name for name, address in addresses.items()}
        self._timeout_s = timeout_s
        self._task = start_task(
            find,
            Look(addresses=tuple(addresses.values())),
            label="the search for the cluster's members",
            scratch=scratch,
            access=Access(profile="cluster"),
            allowance=Allowance(timeout_s=timeout_s + 60),
        )
        self._until_s = time.monotonic() + timeout_s

    def look(self) -> None:
        """Note who has answered since, without waiting.

        Raises `ToolFailed` after the timeout, with the names of those that never answered.
        """
        ended = self._task.child.has_ended()
        self._task.relay(self._note)
        if ended and self._missing:
            # It crashed: this raises.
            self._task.answer()
        if time.monotonic() < self._until_s:
            return
        if self._missing:
            missing = (f"{name} ({address})" for address, name in self._missing.items())
            raise ToolFailed(
                f"no answer within {self._timeout_s:g} s from {listed(missing, _NAMED)}",
                hint="check that they run, and can be reached at these addresses; "
                "--connect-timeout-s sets how long to wait",
            )
        raise ToolFailed(
            f"all members of the cluster answer, but they did not connect within "
            f"{self._timeout_s:g} s",
            hint="check that all have the same TF_CONFIG cluster, the same strategy, and run "
            "the same version of TensorFlow",
        )

    def _note(self, address: str) -> None:
        self._missing.pop(address, None)

    def close(self) -> None:
        """End the search."""
        self._task.child.kill()


def find(look: Look) -> int:
    """Report each member as it answers; returns their number in the end. Runs in a child."""
    # In threads: a member that is slow to resolve or to answer does not delay the others.
    threads = [
        threading.Thread(target=_await_answer, args=(address,), daemon=True)
        for address in look.addresses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads)


def _await_answer(address: str) -> None:
    while not _answers(address):
        time.sleep(_PAUSE_S)
    report_progress(address)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(host_and_port(address), _ANSWER_WITHIN_S) as connection:
            # Where nothing listens, a connection within the machine may be to itself.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False
