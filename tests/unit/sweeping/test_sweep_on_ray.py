"""`sweep` with devices: what is refused before a cluster is asked, and which jobs wait."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from sweeps import SWEEP, planned, result_of, write_models

import edgeconv
from edgeconv.errors import EdgeconvError, UsageError
from edgeconv.requests.worker import WorkerRequest
from edgeconv.sweeping.on_ray import RayExecutor
from edgeconv.sweeping.results import Results
from edgeconv.sweeping.schedule import run_jobs
from edgeconv.sweeping.worker import worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgeconv.sweeping.executors import Handle
    from edgeconv.sweeping.jobs import SweepJob


def test_a_phone_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = 'runtimes = ["litert", "adb"]\n'
    (tmp_path / "sweep.toml").write_text(text + SWEEP, encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: adb may be a different device on each node"):
        edgeconv.sweep("sweep.toml", on="ray", allow=("runtime=adb",))


def test_a_device_has_one_job_which_makes_its_files_after_the_others(tmp_path: Path) -> None:
    write_models(tmp_path, "a", "b")
    text = 'runtimes = ["litert", "ssh:pi@host", "tflite-micro"]\n' + SWEEP
    plan = planned(tmp_path, text, allow=("runtime=ssh:pi@host",))
    assert [(job.device, len(job.cells)) for job in plan.jobs] == [
        ("", 4),
        ("ssh:pi@host", 2),
    ] * 2
    results = Results(tmp_path / "out")
    together: list[list[str]] = []
    run_jobs(plan.jobs, HoldingExecutor(results, together), results, lambda *_: None)
    # Of six slots never more than one has the device, nor while the same files are made.
    assert together == [["", ""], ["ssh:pi@host"], ["ssh:pi@host"]]


class NoNodes:
    """A cluster whose nodes are lost."""

    def nodes(self) -> tuple[()]:
        return ()

    def announcing(self, _device: str) -> tuple[()]:
        return ()


def test_the_cells_of_a_device_that_is_lost_fail_with_that_reason(tmp_path: Path) -> None:
    write_models(tmp_path)
    text = 'runtimes = ["ssh:pi@host"]\n' + SWEEP
    plan = planned(tmp_path, text, allow=("runtime=ssh:pi@host",))
    results = Results(tmp_path / "out")
    executor = RayExecutor(NoNodes(), width=2)  # type: ignore[arg-type]
    run_jobs(plan.jobs, executor, results, lambda *_: None)
    reasons = {(result.reason if (result := results.read(c.key)) else "") for c in plan.cells}
    assert reasons == {"no node announces ssh:pi@host now"}


def test_where_all_nodes_that_time_are_lost_their_cells_fail(tmp_path: Path) -> None:
    write_models(tmp_path)
    plan = planned(tmp_path, "timing = true\n" + SWEEP)
    results = Results(tmp_path / "out")
    executor = RayExecutor(NoNodes(), width=2, timing=("node",))  # type: ignore[arg-type]
    run_jobs(plan.jobs, executor, results, lambda *_: None)
    reasons = {(result.reason if (result := results.read(c.key)) else "") for c in plan.cells}
    assert reasons == {"every node that measures times is lost"}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://host:10001", "'ray://host:10001' is not the address of a cluster's head"),
        ("host", "'host' is not the address of a cluster's head"),
        ("10.0.0.1:6379", "runs the code of any client"),
    ],
)
def test_a_worker_joins_a_head_with_a_token_only(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    with pytest.raises(UsageError, match=message):
        worker(WorkerRequest(address=address))


def test_a_worker_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="a cluster needs Ray") as caught:
        worker(WorkerRequest(address="127.0.0.1:6379"))
    assert caught.value.hint == "pip install 'edgeconv[ray]'"


class HoldingExecutor:
    """Runs jobs when it is waited for, all that were started; and keeps their devices."""

    width = 6

    def __init__(self, results: Results, together: list[list[str]]) -> None:
        self._results, self._together = results, together

    def submit(self, job: SweepJob) -> HeldJob:
        return HeldJob(job)

    def wait(self, handles: Sequence[Handle]) -> None:
        self._together.append([handle.job.device for handle in handles])
        for handle in handles:
            for cell in handle.job.cells:
                self._results.write(result_of(cell))


class HeldJob:
    """A job that has ended once its executor was waited for."""

    def __init__(self, job: SweepJob) -> None:
        self.job = job

    def has_ended(self) -> bool:
        return True

    def error(self) -> EdgeconvError | None:
        return None

    def close(self) -> None:
        pass
