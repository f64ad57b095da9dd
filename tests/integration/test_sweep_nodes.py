"""A sweep on a real cluster: two nodes of Ray with directories and processes of their own."""

import subprocess
import time
from typing import NamedTuple

import psutil
import pytest
from forking import edgeconv_command
from ray_nodes import WITHIN_S, eventually, raylets, started_head, started_node
from sweeps import SWEEP, write_models

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")

from collections.abc import Iterator, Sequence
from pathlib import Path

from ray_nodes import Head

import edgeconv

CODE = """
import os, time
import numpy as np

def waits(outputs, labels):
    while os.path.exists({hold!r}):
        time.sleep(0.05)
    return np.ones(len(labels))
"""
METRIC = '[bench]\nmetric = "code:waits"\n'
FILES = ("sweep.json", "sweep.html", "sweep.csv")


class Nodes(NamedTuple):
    """The head of a cluster and its process, and that of a second node."""

    cluster: Head
    head: subprocess.Popen[bytes]
    second: subprocess.Popen[bytes]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_models(tmp_path, "a", "b")
    (tmp_path / "code.py").write_text(CODE.format(hold=str(tmp_path / "hold")), encoding="utf-8")
    (tmp_path / "sweep.toml").write_text(SWEEP + METRIC, encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nodes(tmp_path_factory) -> Iterator[Nodes]:
    directory = tmp_path_factory.mktemp("r")
    with started_head(directory) as head:
        joins = f"--address={head.address}"
        with started_node(directory / "second.log", head.variables, joins) as second:
            eventually(lambda: bool(raylets(second)), "the second node has its raylet")
            yield Nodes(head, head.process, second)


@pytest.mark.slow
def test_a_killed_node_and_a_killed_driver_cost_what_they_ran_and_no_more(folder, nodes):
    edgeconv.sweep("sweep.toml", jobs=2, out="here.sweep", allow_code=True)

    (folder / "hold").touch()
    driver = started(nodes)
    eventually(lambda: all(scoring(node) for node in nodes[1:]), "both nodes are at a cell")
    (raylet,) = raylets(nodes.second)
    raylet.kill()
    time.sleep(1)
    (folder / "hold").unlink()
    out, _ = driver.communicate(timeout=WITHIN_S)
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
    out, _ = started(nodes).communicate(timeout=WITHIN_S)
    assert b"4 cells, 4 done, 0 failed" in out
    assert {result: result.stat().st_mtime_ns for result in written} == written


def started(nodes: Nodes) -> subprocess.Popen[bytes]:
    command = [*edgeconv_command(), "sweep", "sweep.toml", "--allow-code", "-o", "there.sweep"]
    return subprocess.Popen(
        [*command, "--on", nodes.cluster.drivers],
        env=nodes.cluster.variables,
        stdout=subprocess.PIPE,
    )


def scoring(node: subprocess.Popen[bytes]) -> bool:
    """Whether the metric runs somewhere below a node."""
    return any("scoring" in " ".join(command) for command in commands(node))


def commands(node: subprocess.Popen[bytes]) -> Iterator[Sequence[str]]:
    for each in psutil.Process(node.pid).children(recursive=True):
        try:
            yield each.cmdline()
        except psutil.Error:
            # It has ended.
            continue
