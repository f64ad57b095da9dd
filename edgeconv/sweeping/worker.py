"""The verb `worker`: a node of a cluster that announces the devices of its machine.

A device is a resource of the node, of which there is one, so that Ray gives it to one job at a
time. Other runs of the same user on this machine take turns with these by `runtimes.leases`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.cluster import RayCluster, imported_ray, parse_head, refuse_without_token
from edgeconv.processes.sandbox import Access
from edgeconv.processes.workers import Child, poll_until
from edgeconv.runtimes.android import connected_serials
from edgeconv.runtimes.leases import device_name, is_device
from edgeconv.runtimes.remote import Machine, parse_ssh_address
from edgeconv.store import scratch_directory
from edgeconv.types import Allowance, RuntimeChoice
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from edgeconv.requests.worker import WorkerRequest

_START = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
_STARTED = b"Ray runtime started"
_FOR_EVER = Allowance(timeout_s=float("inf"))
_JOIN_TIMEOUT_S = 120.0
_END_WITHIN_S = 20.0


def worker(request: WorkerRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> None:
    """Join a cluster, and do its work until this is interrupted or the cluster ends.

    Raises `UsageError` for a bad address, a device that is not one or that another node announces
    already, without a token and without Ray; `ToolFailed` where a device or the cluster does not
    answer.
    """
    head = parse_head(request.address)
    imported_ray()
    refuse_without_token(head)
    with scratch_directory() as scratch:
        devices = _reached(request.devices, scratch, on_progress)
        on_progress(f"joining the cluster at {head}")
        own = scratch / "node"
        own.mkdir()
        node = Child(
            _command(head, devices, request.cores),
            label="the node of Ray",
            cwd=own,
            access=Access(profile="jobs"),
            allowance=_FOR_EVER,
        )
        with contextlib.ExitStack() as stack:
            # A node that is killed is still in the cluster for some seconds.
            stack.callback(node.end, _END_WITHIN_S)
            _wait_until_joined(node, head, devices)
            on_progress(f"announced: {listed(devices) or 'cores only'}; Ctrl-C ends this worker")
            poll_until(node.has_ended)
            node.raise_unless_well()


def _reached(
    choices: Sequence[RuntimeChoice], scratch: Path, on_progress: Callable[[str], None]
) -> tuple[str, ...]:
    """The names of the devices, each of which has answered. Raises as `worker`."""
    reached: list[RuntimeChoice] = []
    for choice in choices:
        if not is_device(choice):
            raise UsageError(
                f"{choice} is not a device", hint="as in --devices ssh:pi@host,adb:SERIAL"
            )
        on_progress(f"asking {choice}")
        if choice.name == "adb":
            serials = connected_serials(choice.location, scratch)
            reached += [msgspec.structs.replace(choice, location=serial) for serial in serials]
        else:
            with Machine(parse_ssh_address(choice.location), choice.options, scratch):
                reached.append(choice)
    return tuple(sorted({device_name(choice) for choice in reached}))


def _command(head: str, devices: Sequence[str], cores: int | None) -> list[str]:
    resources = msgspec.json.encode(dict.fromkeys(devices, 1)).decode()
    limits = [] if cores is None else [f"--num-cpus={cores}"]
    return [*_START, f"--address={head}", f"--resources={resources}", *limits]


def _wait_until_joined(node: Child, head: str, devices: Sequence[str]) -> None:
    """Raises where the node ends, does not start in time, or has a device that another one has."""
    until_s = time.monotonic() + _JOIN_TIMEOUT_S
    poll_until(
        lambda: _STARTED in node.log.read_bytes() or node.has_ended() or time.monotonic() > until_s
    )
    node.check()
    if _STARTED not in node.log.read_bytes():
        raise ToolFailed(
            f"the node of Ray did not start within {_JOIN_TIMEOUT_S:g} s\n{node.tail()}",
            hint="it may need more memory, or free cores: try again",
        )
    with RayCluster(head) as cluster:
        addresses = {d: [node.address for node in cluster.announcing(d)] for d in devices}
    for device, announcing in addresses.items():
        if len(announcing) > 1:
            raise UsageError(
                f"{device} is already announced by a worker on {listed(set(announcing))}",
                hint="a device can have only one worker: stop that one, or announce it only there",
            )
