"""Devices of a cluster: a worker announces one, a sweep measures on it, and no second one may."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest
from forking import edgeconv_command
from ray_nodes import WITHIN_S, eventually, started_head
from ssh_server import start_server, stop_server
from sweeps import SWEEP, write_models

from edgeconv.types import Report, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ray_nodes import Head

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_models(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = start_server(tmp_path_factory.mktemp("sshd"))
    yield f"ssh:{server.place()}"
    stop_server(server)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with started_head(tmp_path_factory.mktemp("r")) as head:
        yield head


def command(head: Head, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*edgeconv_command(), *words],
        env=head.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def output(head: Head, *words: str) -> tuple[int, str]:
    process = command(head, *words)
    out, _ = process.communicate(timeout=WITHIN_S)
    return process.returncode, out.decode()


def test_a_sweep_times_on_a_device_that_a_worker_announces(
    folder: Path, board: str, head: Head
) -> None:
    text = f'timing = true\nruntimes = ["litert", "{board}"]\n{SWEEP}\n'
    text += f'[bench]\nrounds = 1\nrepeats = 20\nsamples = 20\npython = "{sys.executable}"\n'
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    device = board.partition("?")[0]
    words = ("sweep", "sweep.toml", "--on", head.drivers, "--allow", f"runtime={board}")
    words += ("--allow", f"program={sys.executable}")

    code, out = output(head, *words)
    assert code == 2
    assert f"no node of the cluster announces {device}; announced: none" in out
    assert f"edgeconv worker HEAD:PORT --devices {device}" in out

    worker = command(head, "worker", head.address, "--devices", board, "--cores", "1")
    try:
        assert worker.stdout is not None
        lines = []
        for line in worker.stdout:
            lines.append(line.decode())
            if "announced:" in lines[-1]:
                break
        assert lines[-1:] == [f"announced: {device}; Ctrl-C ends this worker\n"], "".join(lines)

        code, out = output(head, "worker", head.address, "--devices", board, "--cores", "1")
        assert (code, f"{device} is already announced by a worker on" in out) == (2, True), out

        code, out = output(head, *words)
        assert code == 0, out
        swept = msgspec.json.decode((folder / "sweep.sweep/sweep.json").read_bytes(), type=Swept)
        assert sorted({cell.runtime for cell in swept.cells}) == ["litert", board]
        assert all(cell.latency_us for cell in swept.cells)
        assert [cell.state for cell in swept.cells] == ["done"] * 4

        # Its samples are spread over both nodes, and it is timed on one of them, or the device.
        for runtime in ("litert", board):
            words = ("bench", "nets/a.tflite", "--data", "test.npz?labels=y", "--json", "-q")
            words += ("--rounds", "1", "--python", sys.executable, "--runtime", runtime)
            code, out = output(head, *words, "--on", head.drivers)
            assert code == 0, out
            report = msgspec.json.decode(out, type=Report)
            (row,) = report.measurements
            assert row.latency is not None
            assert row.accuracy is not None
            assert (row.accuracy.samples, row.error) == (200, "")
            assert report.environment.host == (device if runtime == board else "")

        node = psutil.Process(worker.pid)
        below = node.children(recursive=True)
        assert any(each.name() == "raylet" for each in below)
    finally:
        worker.terminate()
        worker.communicate(timeout=WITHIN_S)
    eventually(lambda: not any(map(psutil.Process.is_running, below)), "the node has ended")


def test_a_worker_refuses_what_is_not_a_device_or_does_not_answer(head: Head) -> None:
    code, out = output(head, "worker", head.address, "--devices", "litert")
    assert (code, "litert is not a device" in out) == (2, True), out
    code, out = output(head, "worker", head.address, "--devices", "ssh:nobody@127.0.0.1:1")
    assert (code, "cannot connect to nobody@127.0.0.1:1 by ssh" in out) == (4, True), out
