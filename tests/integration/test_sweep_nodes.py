"""A sweep on a real cluster: two nodes of Ray with directories and processes of their own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest
from forking import edgeconv_command
from sweeps import SWEEP, write_models

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")

import edgeconv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

CODE = """
import os, time
import numpy as np

def waits(outputs, labels):
    while os.path.exists("hold"):
        time.sleep(0.05)
    return np.ones(len(labels))
"""
METRIC = '[bench]\nmetric = "code:waits"\n'
_RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
_WITHIN_S = 120
FILES = ("sweep.json", "sweep.html", "sweep.csv")


class Nodes(NamedTuple):
    """The address of a cluster, its variables, and the processes of its two nodes."""

    address: str
    variables: dict[str, str]
    head: subprocess.Popen[bytes]
    second: subprocess.Popen[bytes]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_models(tmp_path, "a", "b")
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "sweep.toml").write_text(SWEEP + METRIC, encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # A socket in a long path has no name.
    place = tmp_path_factory.mktemp("r")
    variables = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    # Beside other tests its processes may need long to start.
    variables["RAY_agent_register_timeout_ms"] = "100000"
    own = ["--block", "--disable-usage-stats", "--num-cpus=1", "--object-store-memory=80000000"]
    port, client = free_port(), free_port()
    processes = []

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [*_RAY, "start", *own, *options]
        with (place / f"{name}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))
        return processes[-1]

    try:
        head = start(
            "head",
            *("--head", f"--port={port}", f"--ray-client-server-port={client}"),
            *("--include-dashboard=false", f"--temp-dir={place}"),
        )
        eventually(lambda: listens(client), "the head answers")
        second = start("second", f"--address=127.0.0.1:{port}")
        eventually(lambda: bool(raylets(second)), "the second node has its raylet")
        yield Nodes(f"ray://127.0.0.1:{client}", variables, head, second)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


@pytest.mark.slow
def test_a_killed_node_and_a_killed_driver_cost_what_they_ran_and_no_more(
    folder: Path, nodes: Nodes
) -> None:
    edgeconv.sweep("sweep.toml", jobs=2, directory="here.sweep", any_code=True)

    (folder / "hold").touch()
    driver = started(nodes)
    eventually(lambda: all(scoring(node) for node in nodes[2:]), "both nodes are at a cell")
    (raylet,) = raylets(nodes.second)
    raylet.kill()
    time.sleep(1)
    (folder / "hold").unlink()
    out, _ = driver.communicate(timeout=_WITHIN_S)
    assert b"4 cells, 4 done, 0 failed" in out
    for file in FILES:
        expected = (folder / "here.sweep" / file).read_bytes()
        assert (folder / "there.sweep" / file).read_bytes() == expected

    # Half of the results are there when the next driver is killed.
    results = sorted((folder / "there.sweep").glob("cells/*/*.json"))
    for result in results[::2]:
        result.unlink()
    written = {result: result.stat().st_mtime_ns for result in results[1::2]}
    (folder / "hold").touch()
    driver = started(nodes)
    eventually(lambda: scoring(nodes.head), "a cell runs")
    driver.kill()
    driver.communicate()
    eventually(lambda: not scoring(nodes.head), "the cell has ended with its driver")
    (folder / "hold").unlink()
    out, _ = started(nodes).communicate(timeout=_WITHIN_S)
    assert b"4 cells, 4 done, 0 failed" in out
    assert {result: result.stat().st_mtime_ns for result in written} == written


def started(nodes: Nodes) -> subprocess.Popen[bytes]:
    command = [*edgeconv_command(), "sweep", "sweep.toml", "--allow-code", "-o", "there.sweep"]
    return subprocess.Popen(
        [*command, "--on", nodes.address], env=nodes.variables, stdout=subprocess.PIPE
    )


def scoring(node: subprocess.Popen[bytes]) -> bool:
    """Whether the metric runs somewhere below a node."""
    return any("scoring" in " ".join(command) for command in commands(node))


def raylets(node: subprocess.Popen[bytes]) -> Sequence[psutil.Process]:
    children = psutil.Process(node.pid).children()
    return [each for each in children if each.name() == "raylet"]


def commands(node: subprocess.Popen[bytes]) -> Iterator[Sequence[str]]:
    for each in psutil.Process(node.pid).children(recursive=True):
        try:
            yield each.cmdline()
        except psutil.Error:
            # It has ended.
            continue


def eventually(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WITHIN_S
    while not is_so():
        assert time.monotonic() < until, f"not so within {_WITHIN_S} s: {what}"
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
