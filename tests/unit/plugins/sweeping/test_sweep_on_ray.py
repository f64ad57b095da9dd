"""`sweep` with devices: what is refused before a cluster is asked, and which jobs wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sweeps import SWEEP, planned, result_of, write_models
from wording import fails

import edgeconv
from edgeconv.plugins.scale.sweep import run_jobs
from edgeconv.plugins.scale.sweep_jobs import Handle, Results, SweepJob
from edgeconv.plugins.scale.sweep_on_ray import RayExecutor
from edgeconv.types.errors import EdgeconvError, UsageError


@pytest.mark.parametrize("device", ["adb", "adb:R58", "ssh:pi@host"])
def test_a_device_of_one_machine_is_refused_before_a_cluster_is_asked(
    device, tmp_path, monkeypatch
):
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = f'runtimes = ["litert", "{device}"]\n'
    (tmp_path / "sweep.toml").write_text(text + SWEEP, encoding="utf-8")
    with fails(UsageError):
        edgeconv.sweep("sweep.toml", on="ray", allow=(f"runtime={device}",))


def test_a_device_has_one_job_which_makes_its_files_after_the_others(tmp_path):
    write_models(tmp_path, "a", "b")
    text = 'runtimes = ["litert", "ssh:pi@host", "tflite-micro"]\n' + SWEEP
    plan = planned(tmp_path, text, allow=("runtime=ssh:pi@host",))
    assert [(job.device, len(job.cells)) for job in plan.jobs] == [("", 4), ("ssh:pi@host", 2)] * 2
    results = Results(tmp_path / "out")
    together: list[list[str]] = []
    run_jobs(plan.jobs, HoldingExecutor(results, together), results, lambda *_: None)
    # Of six slots never more than one has the device, nor while the same files are made.
    assert together == [["", ""], ["ssh:pi@host"], ["ssh:pi@host"]]


class NoNodes:
    """A cluster whose nodes are lost."""

    def nodes(self) -> dict[str, int]:
        return {}


def test_where_all_nodes_that_time_are_lost_their_cells_fail(tmp_path):
    write_models(tmp_path)
    plan = planned(tmp_path, "timing = true\n" + SWEEP)
    results = Results(tmp_path / "out")
    executor = RayExecutor(NoNodes(), width=2, timing=("node",))
    run_jobs(plan.jobs, executor, results, lambda *_: None)
    reasons = {(result.reason if (result := results.read(c.key)) else "") for c in plan.cells}
    assert reasons == {"every node that measures times is lost"}


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
