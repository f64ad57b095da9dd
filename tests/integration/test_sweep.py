"""Sweeps for real: resumed, killed, with cells that crash, and by one process and several."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from forking import edgeconv_command
from sweeps import SWEEP, write_models

import edgeconv
from edgeconv.reporting.files import last_check
from edgeconv.system.store import read_noun
from edgeconv.types import CellResult, Swept
from edgeconv.types.errors import UsageError

CODE = """
import os, signal, time
import numpy as np

def good():
    with np.load("test.npz") as file:
        return {"x": file["x"]}, file["y"]

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def slow():
    time.sleep(60)

def greedy():
    held = np.ones(2**27)
    time.sleep(60)
    return held

def waits(outputs, labels):
    while os.path.exists("hold"):
        time.sleep(0.05)
    return np.ones(len(labels))

def dies_of_int8(outputs, labels):
    (values,) = outputs.values()
    if len(np.unique(values)) < 300:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.ones(len(labels))
"""
QUICK = "[bench]\nrounds = 1\nrepeats = 3\nseconds = 0.01\nwarmup-seconds = 0.01\n"
FAILING = """\
models = ["nets/a.tflite"]
recipes = ["float32"]
""" + "".join(
    f'[data.{name}]\nsource = "function:code:{name}"\n'
    for name in ("good", "crash", "slow", "greedy")
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_models(tmp_path, "a", "b")
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(folder: Path) -> dict[Path, int]:
    """When each result was written, in nanoseconds."""
    return {file: file.stat().st_mtime_ns for file in folder.glob("*.sweep/cells/*/*.json")}


def states(swept: Swept) -> dict[str, str]:
    return {f"{cell.model} {cell.recipe}{cell.data}": cell.reason for cell in swept.cells}


def test_a_second_sweep_runs_nothing_and_a_change_only_what_it_decides(folder):
    with pytest.raises(UsageError, match="has no result for any of the 4 cells"):
        edgeconv.sweep("sweep.toml", resume=True)
    first = edgeconv.sweep("sweep.toml", jobs=1)
    assert {cell.state for cell in first.cells} == {"done"}
    written = results(folder)
    assert len(written) == 4
    lines: list[str] = []
    assert edgeconv.sweep("sweep.toml", on_progress=lines.append) == first
    assert results(folder) == written
    assert lines == ["reading nets/a.tflite", "reading nets/b.tflite"]

    more = SWEEP.replace('"int8"', '"int8", "float16"')
    (folder / "sweep.toml").write_text(more, encoding="utf-8")
    status = edgeconv.sweep("sweep.toml", status=True)
    assert (status.count("done"), status.count("missing")) == (4, 2)
    second = edgeconv.sweep("sweep.toml", jobs=1, resume=True)
    assert results(folder).items() >= written.items()
    assert len(results(folder)) == 6
    assert {cell.change for cell in second.cells} == {"", "new"}


@pytest.mark.slow
def test_the_gate_writes_the_verdict_next_to_each_file(folder):
    # A file of two data sets must keep the budget on both.
    text = SWEEP.replace("[data.test]", "[budget]\nmax-size-bytes = 1000\n[data.test]")
    text += '[data.more]\nsource = "cal.npz"\ncalibration = "cal.npz"\n'
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    swept = edgeconv.sweep("sweep.toml", jobs=2)
    edgeconv.check(report=str(folder / "sweep.sweep" / "sweep.json"))
    for cell in swept.cells:
        file = folder / "sweep.sweep" / cell.file
        last = last_check(file, cell.sha256)
        # The int8 file has 1.15 kB, and the float32 file .74 kB.
        assert last.outcome == ("failed" if cell.recipe == "int8" else "passed")
        assert {finding.limit for finding in last.findings or last.passed} == {"max-size-bytes"}


@pytest.mark.slow
def test_the_report_is_the_same_with_any_number_of_processes(folder):
    contents = []
    for jobs in (1, 7):
        cache = ["env", f"EDGECONV_CACHE_DIR={folder / f'cache-{jobs}'}"]
        out = f"out-{jobs}.sweep"
        command = [*cache, *edgeconv_command(), "sweep", "sweep.toml", "-o", out, "-q"]
        subprocess.run([*command, "--jobs", str(jobs)], check=True, capture_output=True)
        files = sorted((folder / out).glob("sweep.*"))
        contents.append({file.name: file.read_bytes() for file in files})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {"sweep.json", "sweep.html", "sweep.csv"}


@pytest.mark.slow
def test_cells_of_kernels_that_are_compared_with_other_ones_are_measured_alone_too(
    folder, micro_cache, monkeypatch
):
    """`bench` runs every file in LiteRT as well, where tflite-micro or a GPU runs it."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(micro_cache))
    text = SWEEP.replace('"int8"', '"int8", "tune(max-drop=0.5, trials=5)"')
    text = text.replace("nets/*", "nets/a*") + QUICK

    def swept(runtimes: str, out: str) -> Swept:
        (folder / "sweep.toml").write_text(f"runtimes = [{runtimes}]\n{text}", encoding="utf-8")
        return edgeconv.sweep("sweep.toml", out=out)

    alone = swept('"tflite-micro"', "alone")
    assert [cell.reason for cell in alone.cells] == ["", "", ""]
    assert {cell.runtime for cell in alone.cells} == {"tflite-micro"}
    # What is missing is measured alone, and gives the report of all together.
    swept('"litert"', "in-turn")
    in_turn, together = (swept('"litert", "tflite-micro"', out) for out in ("in-turn", "together"))
    assert in_turn.reports == together.reports
    rows = [row for report in together.reports for row in report.measurements]
    assert all(row.kernels for row in rows if row.measured_in == "tflite-micro")


@pytest.mark.slow
def test_a_crash_a_timeout_and_a_lack_of_memory_are_one_failed_cell_each(folder):
    (folder / "sweep.toml").write_text(FAILING, encoding="utf-8")
    limits = edgeconv.Execution(
        threads=1, allowance=edgeconv.Allowance(timeout_s=8, memory_bytes=700 << 20)
    )
    swept = edgeconv.sweep("sweep.toml", jobs=2, allow_code=True, execution=limits)
    reasons = {cell.data: cell.reason for cell in swept.cells}
    assert reasons == {
        "good": "",
        "crash": "code:crash was ended by SIGSEGV",
        "slow": "code:slow did not end within 8 s",
        "greedy": "code:greedy used more than 700 MiB",
    }


@pytest.mark.slow
def test_a_metric_that_kills_its_process_fails_the_cells_that_it_dies_of(folder):
    metric = '[bench]\nmetric = "code:dies_of_int8"\n'
    (folder / "sweep.toml").write_text(SWEEP + metric, encoding="utf-8")
    swept = edgeconv.sweep("sweep.toml", jobs=2, allow_code=True)
    failed = {cell.recipe: cell.reason for cell in swept.cells if cell.state == "failed"}
    assert failed == {"int8": "the metric code:dies_of_int8 was ended by SIGKILL"}
    assert (swept.count("done"), swept.count("failed")) == (2, 2)

    written = results(folder)
    edgeconv.sweep("sweep.toml", jobs=2, allow_code=True)
    assert results(folder) == written, "a failed cell is not repeated"
    edgeconv.sweep("sweep.toml", jobs=2, allow_code=True, retry_failed=True)
    changed = {file for file, at in results(folder).items() if at != written[file]}
    kinds = {read_noun(file, CellResult, what="result").error for file in changed}
    assert len(changed) == 2
    assert kinds == {"ToolFailed"}


def begun(folder: Path) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """A sweep of two processes, which wait in their metric, and these processes."""
    (folder / "hold").touch()
    metric = '[bench]\nmetric = "code:waits"\n'
    (folder / "sweep.toml").write_text(SWEEP + metric, encoding="utf-8")
    command = [*edgeconv_command(), "sweep", "sweep.toml", "--jobs", "2", "--allow-code"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        every = psutil.Process(driver.pid).children(recursive=True)
        jobs = [each for each in every if _runs(each, "edgeconv.plugins.scale.sweep_jobs:run_job")]
        # The metric is called with the files of both models there.
        if len(jobs) == 2 and sum(_runs(each, "scoring") for each in every) >= 2:
            return driver, jobs
        time.sleep(0.05)
    driver.kill()
    raise AssertionError(driver.communicate()[1].decode())


def _runs(process: psutil.Process, what: str) -> bool:
    try:
        return any(what in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_killed_process_costs_nothing(folder):
    driver, (job, other) = begun(folder)
    if len(os.sched_getaffinity(0)) == 2:
        assert sorted([job.cpu_affinity(), other.cpu_affinity()]) == [
            [core] for core in sorted(os.sched_getaffinity(0))
        ]
    job.send_signal(signal.SIGKILL)
    job.wait()
    (folder / "hold").unlink()
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err.decode()
    # Its cells ran again, each alone.
    assert b"4 cells, 4 done, 0 failed" in out


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_and_the_next_sweep_ends_the_work(folder):
    driver, jobs = begun(folder)
    every = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    _, alive = psutil.wait_procs(every, timeout=10)
    assert alive == []
    assert jobs
    (folder / "hold").unlink()
    swept = edgeconv.sweep("sweep.toml", jobs=2, allow_code=True)
    assert swept.count("done") == 4


@pytest.mark.slow
def test_a_search_is_a_cell_and_times_are_measured_one_by_one(folder):
    text = SWEEP.replace('"int8"]', '"tune(max-drop=0.5, trials=2)"]').replace("*.tfl", "a.tfl")
    (folder / "sweep.toml").write_text(f"timing = true\n{text}{QUICK}", encoding="utf-8")
    swept = edgeconv.sweep("sweep.toml", jobs=2)
    assert states(swept) == {
        "nets/a.tflite float32test": "",
        "nets/a.tflite tune(max-drop=0.5, trials=2)test": "",
    }
    assert all(cell.latency_us for cell in swept.cells)
    assert any(cell.on_front for cell in swept.cells)


@pytest.mark.slow
def test_a_cluster_gives_the_same_report_and_a_killed_worker_costs_nothing(folder):
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    here = edgeconv.sweep("sweep.toml", jobs=2, out="here.sweep")
    (folder / "hold").touch()
    metric = '[bench]\nmetric = "code:waits"\n'
    (folder / "waits.toml").write_text(SWEEP + metric, encoding="utf-8")
    command = [*edgeconv_command(), "sweep", "waits.toml", "--allow-code", "--on", "ray"]
    driver = subprocess.Popen([*command, "--jobs", "2"], stdout=subprocess.PIPE)
    until = time.monotonic() + 120
    workers: list[psutil.Process] = []
    while not workers and time.monotonic() < until:
        every = psutil.Process(driver.pid).children(recursive=True)
        workers = [each for each in every if _runs(each, "ray::run_remotely")]
        if not any(_runs(each, "scoring") for each in every):
            workers = []
        time.sleep(0.1)
    workers[0].kill()
    (folder / "hold").unlink()
    out, _ = driver.communicate(timeout=180)
    assert b"4 cells, 4 done, 0 failed" in out

    command = [*edgeconv_command(), "sweep", "sweep.toml", "--on", "ray", "-o", "there.sweep"]
    subprocess.run([*command, "-q"], check=True, capture_output=True)
    for file in ("sweep.json", "sweep.html", "sweep.csv"):
        assert (folder / "there.sweep" / file).read_bytes() == (
            folder / "here.sweep" / file
        ).read_bytes()
    assert here.count("done") == 4
