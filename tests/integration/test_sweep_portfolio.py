"""A portfolio of 200 cells: processes and the driver are killed, and every way gives one report."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from forking import edgeconv_command
from sweeps import write_models

import edgeconv

if TYPE_CHECKING:
    from pathlib import Path

SWEEP = """\
models = ["nets/*.tflite"]
recipes = ["float32", "float16", "dynamic", "int8"]
[data.test]
source = "test.npz?labels=y"
calibration = "cal.npz"
[data.same]
source = "cal.npz"
calibration = "cal.npz"
"""
MODELS, CELLS = 25, 200
KILLS = 6

# 200 cells five times over take a quarter of an hour: it measures what kills cost.
pytestmark = pytest.mark.long


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_models(tmp_path, *(f"net{number:02}" for number in range(MODELS)))
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(folder: Path, out: str) -> dict[str, int]:
    """When the result of each cell was written, in nanoseconds."""
    files = (folder / out).glob("cells/*/*.json")
    return {file.name: file.stat().st_mtime_ns for file in files}


def jobs_of(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that run jobs."""
    found = []
    for each in psutil.Process(driver.pid).children():
        try:
            words = each.cmdline()
        except psutil.Error:
            continue
        if any("edgeconv.plugins.scale.sweeping.jobs:run_job" in word for word in words):
            found.append(each)
    return found


def report_of(folder: Path, out: str) -> dict[str, bytes]:
    names = ("sweep.json", "sweep.html", "sweep.csv")
    return {name: (folder / out / name).read_bytes() for name in names}


def test_kills_cost_what_ran_and_every_number_of_processes_gives_one_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        *edgeconv_command(),
        "sweep",
        "sweep.toml",
        "--jobs",
        "2",
        "-q",
        "-o",
        "killed.sweep",
    ]
    driver = subprocess.Popen(command)
    kills = 0
    while len(results(folder, "killed.sweep")) < CELLS // 3:
        assert driver.poll() is None
        time.sleep(2)
        if kills < KILLS and (jobs := jobs_of(driver)):
            jobs[0].send_signal(signal.SIGKILL)
            kills += 1
    every = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(every, timeout=20)
    assert alive == []
    assert kills == KILLS

    before = results(folder, "killed.sweep")
    assert CELLS // 3 <= len(before) < CELLS
    resumed = edgeconv.sweep("sweep.toml", jobs=2, resume=True, out="killed.sweep")
    assert (len(resumed.cells), resumed.count("done")) == (CELLS, CELLS)
    after = results(folder, "killed.sweep")
    assert after.items() >= before.items(), "no finished cell is repeated"

    expected = report_of(folder, "killed.sweep")
    for jobs in (1, 2, 7):
        # Without this, what an earlier one converted is there already.
        monkeypatch.setenv("EDGECONV_CACHE_DIR", str(folder / f"cache-{jobs}"))
        edgeconv.sweep("sweep.toml", jobs=jobs, out=f"by-{jobs}.sweep")
        assert report_of(folder, f"by-{jobs}.sweep") == expected


def test_a_cluster_gives_the_report_of_this_machine(folder: Path) -> None:
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    edgeconv.sweep("sweep.toml", jobs=2, out="here.sweep")
    there = ["--on", "ray", "-q", "-o", "there.sweep"]
    subprocess.run([*edgeconv_command(), "sweep", "sweep.toml", *there], check=True)
    assert report_of(folder, "there.sweep") == report_of(folder, "here.sweep")
