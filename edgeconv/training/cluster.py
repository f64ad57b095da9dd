"""TF_CONFIG: the members of a cluster of training processes, and which of them this is.

This is the format of TensorFlow's distributed training guide: a "cluster" of roles, each with the
addresses of its members, and the "task" of this process.

TensorFlow waits for members without naming the missing ones, so they are looked for: in a child,
since a name that cannot be resolved may block for many seconds.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import report_progress, start_task
from edgeconv.types import Allowance, StrategyName
from edgeconv.types.decoding import ready
from edgeconv.types.errors import ToolFailed, UsageError, unknown_name
from edgeconv.types.words import listed

Role = Literal["chief", "worker", "ps", "evaluator"]
_ROLES: tuple[Role, ...] = get_args(Role)
_ONLY_ONE: tuple[Role, ...] = ("chief", "evaluator")
_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_HINT = f"set TF_CONFIG as in {_EXAMPLE}; or remove it, and use --workers"
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ADDRESS = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{{1,5}})"
)
_LONGEST_HOST = 253
_QUOTED_CHARACTERS = 80


class _TaskEntry(msgspec.Struct):
    type: str
    index: int | str


class _TfConfig(msgspec.Struct):
    """The content of TF_CONFIG; other keys, such as Vertex AI's, are ignored."""

    cluster: dict[str, tuple[str, ...]]
    task: _TaskEntry


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as one of its members sees it: `addresses` ("host:port") by role."""

    addresses: dict[Role, tuple[str, ...]]
    role: Role
    index: int

    @property
    def members(self) -> dict[str, str]:
        """The address of each member by its name, in the order chief, worker, ps, evaluator."""
        return {
            _name(role, index): address
            for role in _ROLES
            for index, address in enumerate(self.addresses.get(role, ()))
        }

    @property
    def member_name(self) -> str:
        """This member's name, such as "worker 1" or "chief"."""
        return _name(self.role, self.index)

    @property
    def address(self) -> str:
        """Where this member listens."""
        return self.addresses[self.role][self.index]

    @property
    def is_chief(self) -> bool:
        """Whether this member keeps checkpoints: the chief, or the first worker without one."""
        return (self.role, self.index) == ("chief" if self.size("chief") else "worker", 0)

    @property
    def serves(self) -> bool:
        """Whether this member serves a coordinator, until it is ended."""
        return self.role == "ps" or (self.role == "worker" and self.size("ps") > 0)

    @property
    def peers(self) -> dict[str, str]:
        """The addresses, by name, of the members that this one has to reach before it starts."""
        if self.serves or self.role == "evaluator":
            return {}
        outside = {self.address, *self.addresses.get("evaluator", ())}
        return {name: address for name, address in self.members.items() if address not in outside}

    def size(self, role: Role) -> int:
        """How many members have this role."""
        return len(self.addresses.get(role, ()))

    def tf_config(self) -> str:
        """The text of TF_CONFIG."""
        task = {"type": self.role, "index": self.index}
        return msgspec.json.encode({"cluster": self.addresses, "task": task}).decode()

    def for_strategy(self, strategy: StrategyName) -> Cluster:
        """This cluster. Raises `UsageError` if the strategy cannot train in it."""
        chiefs, workers, servers = (self.size(role) for role in ("chief", "worker", "ps"))
        what = f"TF_CONFIG's cluster ({_summary(self)})"
        if self.role == "evaluator":
            raise UsageError(
                f"this is the evaluator of {what}, which edgeconv does not use",
                hint="remove it: the chief evaluates after each epoch",
            )
        if strategy == "multiworker":
            if servers:
                raise UsageError(
                    f"{what} has parameter servers, which --strategy multiworker does not use",
                    hint="use --strategy parameter-server, or remove the role ps",
                )
        elif strategy == "parameter-server":
            if not (chiefs and workers and servers):
                raise UsageError(
                    f"{what} does not fit --strategy parameter-server",
                    hint="name a chief, and at least one worker and one ps",
                )
        elif chiefs + workers + servers > 1:
            raise UsageError(
                f"{what} has several members, but --strategy {strategy} trains on one",
                hint="use --strategy multiworker, or unset TF_CONFIG",
            )
        return self


def from_tf_config(text: str) -> Cluster:
    """The cluster that TF_CONFIG describes, in which this process is one member.

    Raises `UsageError` if it is empty, truncated, or contradicts itself.
    """
    if not text.strip():
        raise UsageError("TF_CONFIG is not set; it names the members of the cluster", hint=_HINT)
    try:
        raw = text.encode("utf-8", "surrogateescape")
        if msgspec.json.decode(raw) == {}:
            raise UsageError("TF_CONFIG is {}, a process without a cluster", hint=_HINT)
        config = msgspec.json.decode(raw, type=ready(_TfConfig))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"TF_CONFIG {_quoted(text)}: {error}", hint=_HINT) from error
    addresses: dict[Role, tuple[str, ...]] = {
        _role(name): members for name, members in config.cluster.items() if members
    }
    _check_addresses(addresses)
    role = _role(config.task.type)
    return Cluster(addresses=addresses, role=role, index=_index(config.task, role, addresses))


def moved(clusters: Sequence[Cluster], addresses: Sequence[str]) -> tuple[Cluster, ...]:
    """The views of the members of one cluster, in order, with other addresses in that order."""
    roles: dict[Role, tuple[str, ...]] = {}
    for cluster, address in zip(clusters, addresses, strict=True):
        roles[cluster.role] = (*roles.get(cluster.role, ()), address)
    return tuple(msgspec.structs.replace(cluster, addresses=roles) for cluster in clusters)


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of "host:port", an IPv6 address without brackets. Raises `UsageError`."""
    match = _ADDRESS.fullmatch(address)
    host, port = (match["host"], int(match["port"])) if match else ("", 0)
    if not host or len(host) > _LONGEST_HOST:
        raise UsageError(f"TF_CONFIG: {_quoted(address)} is not host:port", hint=_HINT)
    if not 0 < port < 2**16:
        raise UsageError(f"TF_CONFIG: the port of {_quoted(address)} is not in 1 to 65535")
    return host.strip("[]"), port


def _check_addresses(addresses: Mapping[Role, tuple[str, ...]]) -> None:
    if not addresses:
        raise UsageError("TF_CONFIG: the cluster has no members", hint=_HINT)
    taken: dict[tuple[str, int], str] = {}
    for role, members in addresses.items():
        if role in _ONLY_ONE and len(members) > 1:
            raise UsageError(f"TF_CONFIG: there can be only one {role}, but it has {len(members)}")
        for index, address in enumerate(members):
            host, port = host_and_port(address)
            name = _name(role, index)
            other = taken.setdefault((host.lower(), port), name)
            if other != name:
                raise UsageError(f"TF_CONFIG: {other} and {name} have the same address {address}")


def _role(name: str) -> Role:
    for role in _ROLES:
        if role == name:
            return role
    raise unknown_name("role in TF_CONFIG", name[:_QUOTED_CHARACTERS], _ROLES)


def _index(task: _TaskEntry, role: Role, addresses: Mapping[Role, tuple[str, ...]]) -> int:
    count = len(addresses.get(role, ()))
    if not count:
        raise UsageError(
            f"TF_CONFIG: the task is of the role {role}, which is not in the cluster", hint=_HINT
        )
    # Vertex AI may write it as a text.
    digits = str(task.index) if isinstance(task.index, int) else task.index.strip()
    if not re.fullmatch("[0-9]{1,6}", digits):
        raise UsageError(
            f"TF_CONFIG: the task's index {_quoted(digits)} is not a number", hint=_HINT
        )
    if int(digits) >= count:
        raise UsageError(
            f"TF_CONFIG: the task is {role} {int(digits)}, and the cluster's last is "
            f"{role} {count - 1}",
            hint="an index counts from 0",
        )
    return int(digits)


def _name(role: Role, index: int) -> str:
    return role if role in _ONLY_ONE else f"{role} {index}"


def _summary(cluster: Cluster) -> str:
    return ", ".join(f"{cluster.size(role)} {role}" for role in _ROLES if cluster.size(role))


def _quoted(text: str) -> str:
    if len(text) > _QUOTED_CHARACTERS:
        return f"{text[:_QUOTED_CHARACTERS]!r}…"
    return repr(text)


# Ports of this machine for the members.

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


# The other members, which answer at their addresses.

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
        ended = self._task.has_ended()
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
        self._task.close()


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
