"""A real cluster: a head node of Ray, and other nodes, each a process with its own directories."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_OWN = ("--block", "--disable-usage-stats", "--num-cpus=1", "--object-store-memory=80000000")
WITHIN_S = 300


class Head(NamedTuple):
    """The head of a cluster: where nodes join and drivers connect, and the variables for both."""

    address: str
    drivers: str
    variables: dict[str, str]
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def started_head(directory: Path) -> Iterator[Head]:
    """The head node of a cluster, with one core; a socket in a long path has no name."""
    variables = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    # Beside other tests its processes may need long to start.
    variables["RAY_agent_register_timeout_ms"] = "100000"
    # Else what starts the server of a client may die in fork (ray-project/ray#63202).
    variables["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    port, client = free_port(), free_port()
    options = (
        *("--head", f"--port={port}", f"--ray-client-server-port={client}"),
        *("--include-dashboard=false", f"--temp-dir={directory}"),
    )
    with started_node(directory / "head.log", variables, *options) as process:
        eventually(lambda: listens(client) or process.poll() is not None, "the head answers")
        assert process.poll() is None, (directory / "head.log").read_text()[-2000:]
        yield Head(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", variables, process)


@contextlib.contextmanager
def started_node(
    log: Path, variables: dict[str, str], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A node with one core, as `ray start` makes it."""
    command = [*_RAY, "start", *_OWN, *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=variables, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def raylets(node: subprocess.Popen[bytes]) -> Sequence[psutil.Process]:
    children = psutil.Process(node.pid).children(recursive=True)
    return [each for each in children if each.name() == "raylet"]


def eventually(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until, f"not so within {WITHIN_S} s: {what}"
        time.sleep(0.2)


def free_port() -> int:
    # Ray gives its workers those from 10,002 to 19,999.
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        if port > 20_000:
            return port


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
