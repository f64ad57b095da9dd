"""The benchmark of the scheduler, on two simulated cores and a few short cells."""

import json
import os
import secrets
import subprocess
import sys

import pytest
from places import ROOT
from sweeps import write_models

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")


# A process of its own: Ray reads its token when it is imported. It counts how often Ray is called.
MEASURE = """
import json, sys
from pathlib import Path
import ray
from benchmarks.scheduling import measure, real_job
from benchmarks.simulated_cells import simulated_jobs

calls, wait = [], ray.wait
ray.wait = lambda refs, **options: calls.append(len(refs)) or wait(refs, **options)
job = real_job(Path(sys.argv[1]), Path("nets/a.tflite"))
jobs = simulated_jobs(job, 10, lengths_s=(0.2, 1.0))
print(json.dumps({**measure(jobs, cores=2, connection="driver"), "calls": calls}))
"""


@pytest.mark.slow
def test_the_scheduler_calls_ray_no_more_than_it_must(tmp_path, monkeypatch):
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, "scratch"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
        },
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    ).stdout
    record = json.loads(out.splitlines()[-1])
    assert (record["cores"], record["cells"]) == (2, 10)
    for run in (record["edgeconv"], record["plain_tasks"]):
        assert run["wall_s"] >= record["least_wall_s"] > record["work_s"] / 2 > 1
    # Two for each end, and some where none comes soon: not one for each task in each poll.
    assert 10 <= len(record["calls"]) <= 3 * record["cells"] + 3 * record["edgeconv"]["wall_s"]
    assert max(record["calls"]) == 2
