"""Sweeps whose nodes have none of this machine's files."""

import math
import subprocess
from pathlib import Path

import msgspec
import pytest
from forking import edgeconv_command
from ray_nodes import WITHIN_S, started_head
from sweeps import SWEEP, write_models

import edgeconv
from edgeconv.plugins.scale.cluster import run_remotely
from edgeconv.plugins.scale.sweep_jobs import Results, SweepJob
from edgeconv.plugins.scale.sweep_on_ray import CarriedJob, carried_files, keep_returned
from edgeconv.plugins.scale.sweep_plan import make_plan
from edgeconv.requests.tune import SweepRequest
from edgeconv.system.processes.failures import ChildFailure
from edgeconv.system.processes.sandbox import Access
from edgeconv.types import Allowance

CODE = """
from pathlib import Path
import numpy as np
from helper import ones

def right(outputs, labels):
    if (Path.cwd() / "fails").exists():
        raise ValueError("as told")
    (values,) = outputs.values()
    return ones(len(labels))
"""
FILES = ("sweep.json", "sweep.html", "sweep.csv")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Models and code, and the samples in a folder beside it."""
    folder = tmp_path / "here"
    folder.mkdir()
    write_models(folder, "a", "b")
    (folder / "test.npz").rename(tmp_path / "test.npz")
    metric = '[bench]\nmetric = "code:right"\n'
    sweep = SWEEP.replace("test.npz", "../test.npz") + metric
    (folder / "sweep.toml").write_text(sweep, encoding="utf-8")
    (folder / "code.py").write_text(CODE, encoding="utf-8")
    (folder / "helper.py").write_text("from numpy import ones\n", encoding="utf-8")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    return folder


ALLOWED = ("directory=..",)


def assert_same_reports(folder: Path) -> None:
    for name in FILES:
        expected = (folder / "here.sweep" / name).read_bytes()
        assert (folder / "there.sweep" / name).read_bytes() == expected


@pytest.mark.slow
def test_a_node_needs_no_file_of_this_machine(folder, tmp_path):
    """The folder is gone while the jobs run, and the report is the one of this machine."""
    edgeconv.sweep("sweep.toml", jobs=1, out="here.sweep", allow_code=True, allow=ALLOWED)

    directory = folder / "there.sweep"
    request = SweepRequest(file="sweep.toml", any_code=True, allow=ALLOWED)
    jobs = list(make_plan(request, directory, print).missing({}))
    sent = [carried(job) for job in jobs]
    assert sorted(sent[0]) == [
        str(path.relative_to("/"))
        for path in (
            *(folder / name for name in ("cal.npz", "code.py", "helper.py", "nets/a.tflite")),
            tmp_path / "test.npz",
        )
    ]
    for away in (folder, tmp_path / "test.npz"):
        away.rename(away.with_name(f"away-{away.name}"))
    answers = [remotely(job, files) for job, files in zip(jobs, sent, strict=True)]
    for away in (folder, tmp_path / "test.npz"):
        away.with_name(f"away-{away.name}").rename(away)

    for answer, failure, files in answers:
        assert (failure, msgspec.json.decode(answer)) == (b"", {"cells": 2})
        keep_returned(files, directory)
    for cell in make_plan(request, directory, print).cells:
        result = Results(directory).read(cell.key)
        assert result.error == ""
        assert (directory / result.file).is_file()
        assert (directory / result.file).with_suffix(".json").is_file()
    edgeconv.sweep("sweep.toml", out=str(directory), allow_code=True, allow=ALLOWED)
    assert_same_reports(folder)


@pytest.mark.slow
def test_the_results_of_a_job_that_fails_come_back_as_well(folder):
    """As where its metric fails: the reason of each cell is one of its files."""
    directory = folder / "there.sweep"
    request = SweepRequest(file="sweep.toml", any_code=True, allow=ALLOWED)
    (job, *_) = make_plan(request, directory, print).jobs
    fails = str((folder / "fails").relative_to("/"))
    answer, failure, files = remotely(job, {**carried(job), fails: b""})
    assert answer == b""
    assert "as told" in msgspec.json.decode(failure, type=ChildFailure).error().message
    # The artifacts of both cells are there, and neither has a result.
    assert {name.partition("/")[0] for name in files} == {"files"}


@pytest.mark.slow
def test_the_files_travel_through_the_object_store_of_a_cluster(folder, tmp_path_factory):
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    edgeconv.sweep("sweep.toml", jobs=1, out="here.sweep", allow_code=True, allow=ALLOWED)
    with started_head(tmp_path_factory.mktemp("r")) as head:
        words = ("sweep", "sweep.toml", "--allow-code", "--allow", *ALLOWED, "-o", "there.sweep")
        command = [*edgeconv_command(), *words, "--on", head.drivers]
        subprocess.run(command, env=head.variables, timeout=WITHIN_S, check=True)
    assert_same_reports(folder)


def carried(job: SweepJob) -> dict[str, bytes]:
    return {name: file.read_bytes() for name, file in carried_files(job).items()}


def remotely(job: SweepJob, files: dict[str, bytes]) -> tuple[bytes, bytes, dict[str, bytes]]:
    """As in a worker of Ray."""
    return run_remotely(
        "edgeconv.plugins.scale.sweep_on_ray:run_carried",
        msgspec.json.encode(CarriedJob(job=job)),
        "a node",
        Access(profile="jobs"),
        Allowance(timeout_s=math.inf),
        "auto",
        [*files],
        *files.values(),
    )
