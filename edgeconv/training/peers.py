"""The look for the other members of a cluster: who answers at the address it has.

TensorFlow waits for members without a word on who is missing. The look is in a child of its
own: a name that cannot be resolved may hold up who asks for many seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import ToolFailed
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import report_progress, start_task
from edgeconv.training.cluster import host_and_port
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PAUSE_S = 0.5
_ANSWER_WITHIN_S = 3.0
_NAMED = 8


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to look for."""

    addresses: tuple[str, ...]


class Peers:
    """Members of a cluster, some not heard of yet: `addresses` by name.

    `look` is called again and again until all are connected.
    """

    def __init__(self, addresses: Mapping[str, str], timeout_s: float, *, scratch: Path) -> None:
        self._missing = {address: name for name, address in addresses.items()}
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s
        self._task = start_task(
            find,
            Look(addresses=tuple(addresses.values())),
            label="the look for the cluster's members",
            scratch=scratch,
            access=Access(profile="cluster"),
            allowance=Allowance(timeout_s=timeout_s + 60),
        )

    def look(self) -> None:
        """Note who has answered since. Never waits.

        Raises `ToolFailed` once the time is up, with the names of those that never answered.
        """
        ended = self._task.child.has_ended()
        self._task.relay(self._found)
        if ended and self._missing:
            # It crashed, and can tell nothing.
            self._task.answer()
        if time.monotonic() < self._until_s:
            return
        if self._missing:
            raise ToolFailed(
                f"no answer within {self._timeout_s:g} s from {_listed(self._missing)}",
                hint="look whether they run, and can be reached at these addresses; "
                "--connect-timeout-s sets how long to wait",
            )
        raise ToolFailed(
            f"all members of the cluster answer, and yet they did not come together within "
            f"{self._timeout_s:g} s",
            hint="look whether all have the same TF_CONFIG cluster, the same strategy, and run "
            "the same version of TensorFlow",
        )

    def close(self) -> None:
        """Look no further."""
        self._task.child.kill()

    def _found(self, address: str) -> None:
        self._missing.pop(address, None)


def find(look: Look) -> int:
    """How many there are, once all have answered; each is reported as it does. Runs in a child."""
    # One that is slow to resolve or to answer holds up no other.
    seekers = [
        threading.Thread(target=_find_one, args=(address,), daemon=True)
        for address in look.addresses
    ]
    for seeker in seekers:
        seeker.start()
    for seeker in seekers:
        seeker.join()
    return len(seekers)


def _find_one(address: str) -> None:
    while not _answers(address):
        time.sleep(_PAUSE_S)
    report_progress(address)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection(host_and_port(address), _ANSWER_WITHIN_S) as connection:
            # Where nobody listens, a connection within the machine can turn out to be to itself.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def _listed(missing: Mapping[str, str]) -> str:
    names = [f"{name} ({address})" for address, name in missing.items()]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
