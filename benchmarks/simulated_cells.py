"""Cells of simulated length on simulated cores of Ray: each sleeps in its worker.

A cell starts no child: 64 children would measure the cores of this machine, and not the scheduler.
All else is real: the job of a real plan, the executor, the cluster, and the result, which is that
of a real cell, written under a key of its own.
"""

import contextlib
import functools
import hashlib
import heapq
import os
import random
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from edgeconv.plugins.scale.cluster import RayCluster
from edgeconv.plugins.scale.sweep_jobs import JobDone, Results, SweepJob
from edgeconv.system.processes.sandbox import Access
from edgeconv.types import Allowance, CellResult
from edgeconv.types.execution import SandboxMode

# The key under which workers read the result that they copy.
TEMPLATE = "0" * 64
_STORE_BYTES = 80 << 20
_SEED = 7
_START_WITHIN_S = 240


def simulate(
    _reference: str,
    job: bytes,
    _name: str,
    _access: Access,
    _allowance: Allowance,
    _mode: SandboxMode,
    _paths: Sequence[str] = (),
) -> tuple[bytes, bytes, dict[str, bytes]]:
    """In a worker, in place of `run_remotely`: sleep, then write a result for each cell."""
    content = msgspec.json.decode(job, type=SweepJob)
    results = Results(Path(content.results))
    for cell in content.cells:
        time.sleep(length_s(cell.key))
        results.write(replace(_template(content.results), key=cell.key))
    return msgspec.json.encode(JobDone(len(content.cells))), b"", {}


@functools.cache
def _template(directory: str) -> CellResult:
    result = Results(Path(directory)).read(TEMPLATE)
    assert result is not None
    return result


class SimulatedCluster(RayCluster):
    """A cluster whose workers simulate."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.in_worker = self.ray.remote(max_retries=0)(simulate)


def start_workers(cluster: SimulatedCluster, job: SweepJob) -> None:
    """Have all workers started, with all imports done: each core runs a cell at the same time."""
    meeting = Path(job.results) / secrets.token_hex(8)
    meeting.mkdir()
    remote = cluster.ray.remote(num_cpus=1, max_retries=0)(_meet)
    refs = [remote.remote(str(meeting), cluster.cores) for _ in range(cluster.cores)]
    cluster.ray.get(refs, timeout=_START_WITHIN_S)


def _meet(directory: str, count: int) -> None:
    Path(directory, secrets.token_hex(8)).touch()
    _template(str(Path(directory).parent))
    while sum(1 for _ in Path(directory).iterdir()) < count:
        time.sleep(0.2)


def simulated_jobs(job: SweepJob, count: int, lengths_s: tuple[float, float]) -> list[SweepJob]:
    """`count` jobs of one cell, which last between two times; with the same seed the same ones."""
    rng = random.Random(_SEED)
    return [
        _simulated(job, number, length_ms=int(1e3 * rng.uniform(*lengths_s)))
        for number in range(count)
    ]


def _simulated(job: SweepJob, number: int, length_ms: int) -> SweepJob:
    """Its key is spread as keys are; the last eight digits are how long it lasts."""
    key = f"{hashlib.sha256(str(number).encode()).hexdigest()[:56]}{length_ms:08x}"
    return replace(job, name=f"cell {number}", cells=(replace(job.cells[0], key=key),))


def length_s(key: str) -> float:
    """How long the cell of a key lasts."""
    return int(key[-8:], 16) / 1e3


def least_wall_s(lengths_s: Sequence[float], cores: int) -> float:
    """How long they take in this order, where starting and ending take no time at all."""
    free = [0.0] * cores
    for length in lengths_s:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def ray_nodes(cores: int, nodes: int) -> Iterator[dict[str, str]]:
    """A cluster on this machine: a head without cores, and nodes that share them.

    Yields its addresses, for a driver in it and for a client of it.
    """
    os.environ.update(
        {
            # Workers import this module.
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "RAY_AUTH_MODE": "token",
            # Ray reads it once in each process.
            "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(16),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Else what starts the server of a client may die in fork (ray-project/ray#63202).
            "GRPC_ENABLE_FORK_SUPPORT": "0",
            # Many processes on few cores take long to start.
            "RAY_agent_register_timeout_ms": "200000",
            "RAY_worker_register_timeout_seconds": "200",
        }
    )
    from ray.cluster_utils import Cluster

    client = _free_port()
    head = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": client}
    cluster = Cluster(
        initialize_head=True, head_node_args={**head, "object_store_memory": _STORE_BYTES}
    )
    try:
        for number in range(nodes):
            own = cores // nodes + (number < cores % nodes)
            cluster.add_node(num_cpus=own, object_store_memory=_STORE_BYTES)
        yield {"driver": cluster.address, "client": f"ray://127.0.0.1:{client}"}
    finally:
        cluster.shutdown()
