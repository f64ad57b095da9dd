"""Ports of this machine for the members of a cluster."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from edgeconv.training.cluster import Cluster, Role, host_and_port
from edgeconv.types.errors import ToolFailed, UsageError

_LOOPBACK = "127.0.0.1"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 20_000, 32_767
# With less room, ports of the ephemeral range are used as well.
_LEAST_ROOM = 1_000


def local_cluster(
    workers: int, servers: int = 0, *, coordinator: bool = False
) -> tuple[Cluster, ...]:
    """A cluster of processes on this machine, as each of them sees it, on free ports.

    With a `coordinator`, the chief is the first; parameter servers are last. The ports are random:
    two clusters that start at once get different ones. Raises `ToolFailed` if too few are free.
    """
    counts: dict[Role, int] = {"chief": int(coordinator), "worker": workers, "ps": servers}
    ports = iter(_free_ports(sum(counts.values())))
    addresses: dict[Role, tuple[str, ...]] = {
        role: tuple(f"{_LOOPBACK}:{next(ports)}" for _ in range(count))
        for role, count in counts.items()
        if count
    }
    return tuple(
        Cluster(addresses=addresses, role=role, index=index)
        for role, members in addresses.items()
        for index in range(len(members))
    )


def held_port() -> socket.socket:
    """A listening socket on a free port, which no other process gets until it is closed.

    Raises `ToolFailed` where none is free.
    """
    for port in _shuffled():
        held = _socket()
        try:
            held.bind(("", port))
            # A port that is only bound can be bound again.
            held.listen()
        except OSError:
            held.close()
        else:
            return held
    raise ToolFailed("a member of a training needs a port, and none is free")


def refuse_taken_port(cluster: Cluster) -> None:
    """Raise `UsageError` where another process uses the port of this member."""
    if cluster.role == "evaluator":
        return
    _, port = host_and_port(cluster.address)
    if not _can_listen(port):
        raise UsageError(
            f"port {port} of {cluster.member_name} ({cluster.address}) is in use{_by_whom(port)}",
            hint="end that process, or give this member another port in every TF_CONFIG",
        )


def _free_ports(count: int) -> list[int]:
    free: list[int] = []
    for port in _shuffled():
        if len(free) == count:
            break
        if _can_listen(port):
            free.append(port)
    if len(free) < count:
        raise ToolFailed(f"{count} processes need a port each, and {len(free)} are free")
    return free


def _shuffled() -> list[int]:
    candidates = _candidates()
    # With its own generator: two trainings with one seed would choose the same ports.
    return random.Random().sample(candidates, len(candidates))


def _candidates() -> range:
    """Ports outside of the system's ephemeral range.

    A connection could take one of that range before a member listens on it, and an early connection
    to it could be to itself.
    """
    highest = _HIGHEST
    with contextlib.suppress(OSError, ValueError, IndexError):
        highest = min(highest, int(_EPHEMERAL.read_text(encoding="ascii").split()[0]) - 1)
    return range(_LOWEST, (highest if highest - _LOWEST >= _LEAST_ROOM else _HIGHEST) + 1)


def _can_listen(port: int) -> bool:
    """Whether TensorFlow's server could: it listens on every address of the machine."""
    with _socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _socket() -> socket.socket:
    """As servers have it: connections that are timing out do not block the port."""
    new = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return new


def _by_whom(port: int) -> str:
    """The process that listens on a port, if this user may know it."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            # Only a listener has an address for sure.
            ports = connection.laddr[1:2] if connection.status == psutil.CONN_LISTEN else ()
            if port in ports and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by {name} (process {connection.pid})"
    return ""
