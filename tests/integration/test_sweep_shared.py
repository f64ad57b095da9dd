"""Sweeps whose nodes have nothing but the shared cache."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from sweeps import SWEEP, write_models

pytest.importorskip("fsspec", reason="edgeconv[ray] is not installed")

import edgeconv
from edgeconv.errors import UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import start_task
from edgeconv.requests.sweep import SweepRequest
from edgeconv.store.blobs import Blobs
from edgeconv.sweeping.flow import sweep
from edgeconv.sweeping.plan import make_plan
from edgeconv.sweeping.shared import SharedResults, run_shared, shared_job
from edgeconv.types import Allowance

CODE = """
import numpy as np
from helper import ones

def right(outputs, labels):
    (values,) = outputs.values()
    return ones(len(labels))
"""
FILES = ("sweep.json", "sweep.html", "sweep.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    write_models(folder, "a", "b")
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    return folder


def test_a_node_needs_no_path_of_this_machine(folder: Path, tmp_path: Path) -> None:
    """The folder is gone while the jobs run, and the report is the one of this machine."""
    metric = '[bench]\nmetric = "code:right"\n'
    (folder / "sweep.toml").write_text(SWEEP + metric, encoding="utf-8")
    (folder / "code.py").write_text(CODE, encoding="utf-8")
    (folder / "helper.py").write_text("from numpy import ones\n", encoding="utf-8")
    edgeconv.sweep("sweep.toml", jobs=1, directory="here.sweep", any_code=True)

    cache, directory = Blobs(str(tmp_path / "shared")), folder / "there.sweep"
    request = SweepRequest(file="sweep.toml", directory=str(directory), any_code=True)
    jobs = [shared_job(job, cache) for job in make_plan(request, directory, print).missing({})]
    assert sorted(jobs[0].files) == [
        *("cal.npz", "code.py", "helper.py", "nets/a.tflite", "test.npz")
    ]
    folder.rename(tmp_path / "away")
    node = tmp_path / "node"
    node.mkdir()
    for job in jobs:
        task = start_task(
            run_shared,
            job,
            label="a node",
            scratch=node,
            access=Access(profile="jobs"),
            allowance=Allowance(timeout_s=math.inf),
        )
        with task:
            assert task.result().cells == 2
    (tmp_path / "away").rename(folder)

    results = SharedResults(directory, cache)
    for cell in make_plan(request, directory, print).cells:
        result = results.read(cell.key)
        assert result is not None
        assert result.error == ""
        assert (directory / result.file).is_file()
        assert (directory / result.file).with_suffix(".json").is_file()
    edgeconv.sweep("sweep.toml", directory=str(directory), any_code=True)
    for name in FILES:
        assert (directory / name).read_bytes() == (folder / "here.sweep" / name).read_bytes()


def test_through_ray_another_machine_goes_on_with_what_the_cache_has(
    folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    edgeconv.sweep("sweep.toml", jobs=1, directory="here.sweep")
    shared = str(tmp_path / "shared")
    for name in ("there.sweep", "another.sweep"):
        lines: list[str] = []
        request = SweepRequest(
            file="sweep.toml", directory=name, on="ray", shared_cache=shared, jobs=2
        )
        sweep(request, on_progress=lines.append)
        # The second finds all cells, and starts no cluster.
        assert ("connecting to Ray" in lines) == (name == "there.sweep")
        for file in FILES:
            assert (folder / name / file).read_bytes() == (
                folder / "here.sweep" / file
            ).read_bytes()


def test_what_a_node_could_not_have_is_refused(folder: Path, tmp_path: Path) -> None:
    cache = Blobs(str(tmp_path / "shared"))
    file = folder / "sweep.toml"
    # The models of a file that is named by its whole path have whole paths.
    (job, *_) = make_plan(SweepRequest(file=str(file)), folder / "out", print).jobs
    with pytest.raises(UsageError, match="is not below the current directory"):
        shared_job(job, cache)
    with pytest.raises(UsageError, match="--shared-cache is for the nodes of --on"):
        edgeconv.sweep("sweep.toml", shared_cache="x")
