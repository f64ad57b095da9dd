"""What a sweep costs beside its cells: its scheduler on a cluster of 1, 8 and 64 simulated cores.

    python -m benchmarks.scheduling MODEL.tflite [--cores 64] [--cells-per-core 20]

The nodes are those of `ray.cluster_utils.Cluster`, all on this machine. The cells sleep in Ray's
workers; see `benchmarks.simulated_cells`. The scheduler runs them as a driver in the cluster
(`--on ray`) and as its client (`--on ray://HOST:PORT`), each time followed by the same cells as
plain tasks of Ray, all submitted at once. Sizes that are not measured now stay as recorded.
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import edgeconv
from benchmarks.measuring import recorded, write_result
from benchmarks.simulated_cells import (
    TEMPLATE,
    SimulatedCluster,
    least_wall_s,
    length_s,
    ray_nodes,
    simulated_jobs,
    start_workers,
)
from edgeconv.plugins.scale.sweep import run_jobs
from edgeconv.plugins.scale.sweep_jobs import Results, SweepJob
from edgeconv.plugins.scale.sweep_on_ray import RayExecutor
from edgeconv.plugins.scale.sweep_plan import make_plan
from edgeconv.requests.tune import SweepRequest

SWEEP = 'models = ["{name}"]\nrecipes = ["float32"]\n'
# The nodes that share so many cores; the head has none.
NODES = {1: 1, 8: 2, 64: 4}
CONNECTIONS = ("driver", "client")
LENGTHS_S = (0.5, 2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--cores", type=int, nargs="+", default=list(NODES), choices=NODES)
    parser.add_argument("--connections", nargs="+", default=CONNECTIONS, choices=CONNECTIONS)
    parser.add_argument("--cells-per-core", type=int, default=20)
    options = parser.parse_args()
    runs = dict(recorded("scheduling").get("runs", {}))
    with tempfile.TemporaryDirectory() as scratch:
        job = real_job(Path(scratch), options.model)
        for cores, connection in itertools.product(options.cores, options.connections):
            jobs = simulated_jobs(job, cores * options.cells_per_core, LENGTHS_S)
            runs[f"{cores} {connection}"] = measure(jobs, cores, connection)
            print(json.dumps(runs[f"{cores} {connection}"], indent=2), flush=True)
            write_result("scheduling", _record(runs))


def _record(runs: Mapping[str, Any]) -> dict[str, object]:
    import ray

    by_size = sorted(runs.items(), key=lambda each: (each[1]["cores"], each[1]["connection"]))
    return {"ray": ray.__version__, "lengths_s": LENGTHS_S, "runs": dict(by_size)}


def real_job(scratch: Path, model: Path) -> SweepJob:
    """The job of a sweep of this model, which runs here; its result is what cells copy."""
    (scratch / model.name).write_bytes(model.read_bytes())
    file = scratch / "sweep.toml"
    file.write_text(SWEEP.format(name=model.name), encoding="utf-8")
    directory = scratch / "sweep.sweep"
    edgeconv.sweep(str(file), out=str(directory), jobs=1)
    request = SweepRequest(file=str(file))
    job = make_plan(request, directory, lambda _: None).jobs[0]
    results = Results(directory)
    result = results.read(job.cells[0].key)
    assert result is not None
    assert result.report is not None
    results.write(replace(result, key=TEMPLATE))
    return job


def measure(jobs: Sequence[SweepJob], cores: int, connection: str) -> dict[str, Any]:
    """The record of a cluster of this size: of the scheduler, and of plain tasks."""
    lengths = [length_s(job.cells[0].key) for job in jobs]
    results = Results(Path(jobs[0].results))
    nodes = NODES.get(cores, 1)
    with ray_nodes(cores, nodes) as addresses, SimulatedCluster(addresses[connection]) as cluster:
        start_workers(cluster, jobs[0])
        load_average = [round(each, 1) for each in os.getloadavg()]
        executor = RayExecutor(cluster, cluster.cores)
        return {
            "cores": cores,
            "nodes": nodes,
            "connection": connection,
            "cells": len(jobs),
            "work_s": round(sum(lengths), 1),
            "least_wall_s": round(least_wall_s(lengths, cores), 3),
            "load_average": load_average,
            "edgeconv": _timed(lambda: run_jobs(jobs, executor, results, _ignore), jobs, cores),
            "plain_tasks": _timed(lambda: _plain_tasks(cluster, jobs), jobs, cores),
        }


def _ignore(*_: object) -> None:
    """No progress is displayed."""


def _plain_tasks(cluster: SimulatedCluster, jobs: Sequence[SweepJob]) -> None:
    encoded = [msgspec.json.encode(job) for job in jobs]
    cluster.ray.get([cluster.in_worker.remote("", job, "", None, None, "auto") for job in encoded])


def _timed(run: Callable[[], None], jobs: Sequence[SweepJob], cores: int) -> dict[str, float]:
    """The times of a run that has to do all cells."""
    results = Results(Path(jobs[0].results))
    keys = [job.cells[0].key for job in jobs]
    lengths = [length_s(key) for key in keys]
    for key in keys:
        results.remove(key)
    started_s, cpu_s = time.perf_counter(), time.process_time()
    run()
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    assert all(result and result.report for result in map(results.read, keys))
    return {
        "wall_s": round(wall_s, 3),
        "efficiency": round(sum(lengths) / cores / wall_s, 4),
        "of_least_wall": round(least_wall_s(lengths, cores) / wall_s, 4),
        "wall_overhead_ms_per_cell": round(
            1e3 * (wall_s - least_wall_s(lengths, cores)) / len(jobs), 3
        ),
        "driver_cpu_ms_per_cell": round(1e3 * cpu_s / len(jobs), 3),
    }


if __name__ == "__main__":
    main()
