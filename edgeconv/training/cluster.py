"""TF_CONFIG: the members of a cluster of training processes, and which of them this is.

This is the format of TensorFlow's distributed training guide: a "cluster" of roles, each with the
addresses of its members, and the "task" of this process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from edgeconv.types import StrategyName
from edgeconv.types.decoding import ready
from edgeconv.types.errors import UsageError, unknown_name

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
