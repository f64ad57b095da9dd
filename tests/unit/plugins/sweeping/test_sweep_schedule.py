"""Jobs in turn: a job that dies is split, so that one cell alone fails."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sweeps import SWEEP, planned, result_of, write_models

from edgeconv.plugins.scale.sweep import run_jobs
from edgeconv.plugins.scale.sweep_jobs import Handle, Results, SweepJob, fitting_width
from edgeconv.plugins.scale.sweep_plan import SweepPlan
from edgeconv.types.errors import EdgeconvError, OutputRefused, WorkerCrashed


class EndedJob:
    """A job that ended when it was started; with cells of `deadly` it wrote those before."""

    def __init__(self, job: SweepJob, results: Results, deadly: str) -> None:
        self.job, self._error, self.is_closed = job, None, False
        for cell in job.cells:
            if cell.recipe == deadly:
                self._error = WorkerCrashed(f"{cell.recipe} crashed\nits log")
                break
            results.write(result_of(cell))

    def has_ended(self) -> bool:
        return True

    def error(self) -> EdgeconvError | None:
        return self._error

    def close(self) -> None:
        self.is_closed = True


class ImmediateExecutor:
    """Runs each job in `submit`, and counts."""

    def __init__(self, results: Results, width: int, deadly: str = "") -> None:
        self.width, self._results, self._deadly = width, results, deadly
        self.jobs: list[SweepJob] = []
        self.most = 0

    def submit(self, job: SweepJob) -> EndedJob:
        self.jobs.append(job)
        return EndedJob(job, self._results, self._deadly)

    def wait(self, handles: Sequence[Handle]) -> None:
        self.most = max(self.most, len(handles))


@pytest.fixture
def plan(tmp_path) -> SweepPlan:
    write_models(tmp_path, "a", "b", "c")
    return planned(tmp_path, SWEEP.replace('"int8"', '"int8", "float16"'))


def test_all_cells_get_results_and_are_counted(plan, tmp_path):
    results = Results(tmp_path / "out")
    executor = ImmediateExecutor(results, width=2)
    counted: list[tuple[int, int]] = []
    run_jobs(plan.jobs, executor, results, lambda n, new: counted.append((n, len(new))))
    assert counted == [(6, 0), (3, 6), (0, 3)]
    assert executor.most == 2
    assert not list(plan.missing({c.key for c in plan.cells if results.read(c.key)}))


def test_jobs_of_one_model_run_apart_while_others_wait(plan, tmp_path):
    results = Results(tmp_path / "out")
    executor = ImmediateExecutor(results, width=2)
    # Each cell is a job: three of each model.
    jobs = [job.alone(cell) for job in plan.jobs for cell in job.cells]
    run_jobs(jobs, executor, results, lambda *_: None)
    models = [Path(job.measuring.baseline or "").stem for job in executor.jobs]
    assert "".join(models) == "abababccc"


def test_the_guilty_cell_alone_fails_with_its_reason(plan, tmp_path, monkeypatch):
    results = Results(tmp_path / "out")
    executor = ImmediateExecutor(results, width=2, deadly="int8")
    run_jobs(plan.jobs, executor, results, lambda *_: None)
    for cell in plan.cells:
        result = results.read(cell.key)
        assert result.reason == ("int8 crashed" if cell.recipe == "int8" else "")
        assert bool(result.report) == (cell.recipe != "int8")
    # What had a result is not repeated: of each of three models, two cells ran alone.
    assert [len(job.cells) for job in executor.jobs] == [3] * 3 + [1] * 6
    assert all(job.converting and len(job.converting.to) == 1 for job in executor.jobs[3:])
    # Other code of edgeconv may not fail.
    monkeypatch.setattr("edgeconv.plugins.scale.sweep_jobs.code_hash", lambda: "other")
    kept = {cell.recipe for cell in plan.cells if results.read(cell.key)}
    assert kept == {"float16", "float32"}


def test_a_full_disk_ends_the_sweep_and_all_its_jobs(plan, tmp_path):
    results = Results(tmp_path / "out")
    executor = ImmediateExecutor(results, width=3)
    handles = []

    def submit(job: SweepJob) -> EndedJob:
        handle = EndedJob(job, results, "float32")
        handle._error = OutputRefused("no space")
        handles.append(handle)
        return handle

    executor.submit = submit
    with pytest.raises(OutputRefused):
        run_jobs(plan.jobs, executor, results, lambda *_: None)
    assert [handle.is_closed for handle in handles] == [False, True, True]
    assert not any(results.read(cell.key) for cell in plan.cells)


def test_only_missing_cells_are_in_jobs(plan):
    first, second = plan.cells[0].key, plan.cells[1].key
    jobs = list(plan.missing({first, second}))
    assert [len(job.cells) for job in jobs] == [1, 3, 3]
    assert jobs[0].converting.to == (plan.cells[2].recipe,)


def test_a_damaged_result_is_missing(plan, tmp_path):
    results = Results(tmp_path / "out")
    cells = plan.jobs[0].cells
    results.write(result_of(cells[0]))
    (file,) = (tmp_path / "out").rglob("*.json")
    assert results.read(cells[0].key) is not None
    # The result of another cell is none of this one.
    other = file.with_name(f"{cells[1].key}.json")
    target = other.parents[1] / cells[1].key[:2] / other.name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(file.read_bytes())
    assert results.read(cells[1].key) is None
    file.write_bytes(file.read_bytes()[:-9])
    assert results.read(cells[0].key) is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep a process on cores")
def test_a_process_that_may_use_one_core_runs_one_job_at_once(plan):
    """As in a container, or a batch job of a cluster."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        assert fitting_width(plan.jobs, limit_bytes=1) == 1
    finally:
        os.sched_setaffinity(0, mine)
    assert fitting_width(plan.jobs, limit_bytes=1) == min(len(mine), len(plan.jobs))
