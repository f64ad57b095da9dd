"""`edgeconv sweep` beside a shell loop over `edgeconv convert && edgeconv bench`.

    python -m benchmarks.sweep DATA [--repeats 1]

DATA has `hand_gesture/` and `legacy_keras_h5/`: four Keras models, by three recipes each, on two
sets of random samples. Whole processes, all contenders in turn in every round, each with an empty
cache: the shell loop, and a sweep of one process, of one that has one core only (by `taskset`: else
its converter and its verification use a second one at times), of two, and of two on a cluster of
Ray that it starts. All measure accuracy only. `again` is a sweep in which nothing is missing.

`efficiency_of_two` is the time of one process on one core over twice that of two processes, and
`efficiency_of_two_apart` what the machine has of its second core: the same time over that of two
sweeps at once, each of all cells, on a core each. Both are medians over rounds of these three
alone, in which no memory is read, so that nothing else wants a core.

`scheduling` is the cost of the sweep itself per cell: jobs that end at once are scheduled, and
their results read, summarized and written as the three files.
"""

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.measuring import Contender, in_rounds, median_wall, write_result
from edgeconv.plugins.scale.sweep import run_jobs, summarize
from edgeconv.plugins.scale.sweep_jobs import Handle, Results, SweepJob
from edgeconv.plugins.scale.sweep_plan import PlannedCell, SweepPlan, make_plan
from edgeconv.reporting.sweeps import write_sweep
from edgeconv.requests.tune import SweepRequest
from edgeconv.types import CellResult
from edgeconv.types.errors import EdgeconvError

MODELS = {
    "keypoint": "hand_gesture/keypoint_classifier.hdf5",
    "point_history": "hand_gesture/point_history_classifier.hdf5",
    "emotion": "legacy_keras_h5/fer2013_mini_XCEPTION.102-0.66.hdf5",
    "face": "legacy_keras_h5/tiny_XCEPTION_KDEF.hdf5",
}
SHAPES = {"keypoint": (42,), "point_history": (32,), "emotion": (64, 64, 1), "face": (64, 64, 1)}
RECIPES = ("float32", "int8", "dynamic")
SWEEP = """\
models = ["*.hdf5"]
recipes = {recipes}
{data}
"""
SAMPLES = 128
# Of the two data sets of each model.
SEEDS = (7, 8)
CELLS = (200, 2000)
PAIRS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.data, options.repeats)
    print(write_result("sweep", result).read_text(encoding="utf-8"))


def measure(scratch: Path, data: Path, repeats: int) -> dict[str, object]:
    """The whole record."""
    load_average = [round(each, 1) for each in os.getloadavg()]
    _write(scratch, data)
    os.chdir(scratch)
    contenders = _contenders(scratch)
    in_rounds(contenders, repeats)
    by_name = {each.name: each for each in contenders}
    loop, one, _, _, two, on_ray, _ = map(median_wall, contenders)
    on_cores = [
        Contender(each.name, each.command, each.environment, each.before, has_memory=False)
        for each in contenders[2:5]
    ]
    in_rounds(on_cores, PAIRS)
    alone, apart, shared = (each.wall_s for each in on_cores)
    return {
        "load_average": load_average,
        "models": len(MODELS),
        "cells": len(MODELS) * len(SEEDS) * len(RECIPES),
        "repeats": repeats,
        "contenders": {name: each.record() for name, each in by_name.items()},
        "times_faster_than_the_loop": {"one": loop / one, "two": loop / two},
        "efficiency_rounds": PAIRS,
        "efficiency_of_two": _efficiency(alone, [2 * each for each in shared]),
        "efficiency_of_two_apart": _efficiency(alone, apart),
        "efficiency_wall_s": {each.name: [round(s, 1) for s in each.wall_s] for each in on_cores},
        "ray_beside_two": on_ray / two,
        "scheduling_ms_per_cell": {str(count): scheduling(scratch, count) for count in CELLS},
    }


def _efficiency(alone: Sequence[float], both: Sequence[float]) -> float:
    """The median over rounds of the seconds on one core by those that two cores had in all."""
    return statistics.median(one / two for one, two in zip(alone, both, strict=True))


def _write(scratch: Path, data: Path) -> None:
    tables = []
    for name, file in MODELS.items():
        shutil.copy(data / file, scratch / f"{name}.hdf5")
        own = [f"{name}-{seed}" for seed in SEEDS]
        for seed, each in zip(SEEDS, own, strict=True):
            rng = np.random.default_rng(seed)
            np.save(scratch / f"{each}.npy", _samples(rng, SHAPES[name]))
            tables.append(f'[data.{each}]\nsource = "{each}.npy"\ncalibration = "{each}.npy"')
        tables.append(f'[model."{name}.hdf5"]\ndata = {own}')
    text = SWEEP.format(recipes=list(RECIPES), data="\n".join(tables))
    (scratch / "sweep.toml").write_text(text, encoding="utf-8")


def _samples(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random rows of 0 to 1, or images of -1 to 1 whose pixels are like their neighbors."""
    if len(shape) == 1:
        return rng.random((SAMPLES, *shape), np.float32)
    small = rng.uniform(-1, 1, (SAMPLES, 8, 8, 1)).astype(np.float32)
    return np.kron(small, np.ones((1, shape[0] // 8, shape[1] // 8, 1), np.float32))


def _contenders(scratch: Path) -> list[Contender]:
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(scratch / "cache")}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"

    def clear() -> None:
        for each in (*scratch.glob("*.sweep"), *scratch.glob("*.tflites"), *scratch.glob("cache*")):
            shutil.rmtree(each, ignore_errors=True)

    edgeconv = [sys.executable, "-m", "edgeconv"]
    quick = "--rounds 1 --repeats 1 --warmup 1 --seconds 0.001 --warmup-seconds 0"
    loop = " && ".join(
        f"{shlex.join(edgeconv)} convert {name}.hdf5 --to {','.join(RECIPES)} -o {data}.tflites "
        f"--calibration {data}.npy && {shlex.join(edgeconv)} bench {data}.tflites "
        f"--data {data}.npy {quick}"
        for name in MODELS
        for data in (f"{name}-{seed}" for seed in SEEDS)
    )
    sweep = [*edgeconv, "sweep", "sweep.toml"]
    return [
        Contender("shell loop", ["sh", "-c", loop], environment, clear),
        Contender("sweep, one process", [*sweep, "--jobs", "1"], environment, clear),
        Contender("sweep, one process on one core", _on_core(0, sweep), environment, clear),
        Contender(
            "two sweeps apart, each on one core",
            [
                "sh",
                "-c",
                f"{shlex.join(_on_core(0, sweep))} & {shlex.join(_on_core(1, sweep))}; wait",
            ],
            environment,
            clear,
        ),
        Contender("sweep, two processes", [*sweep, "--jobs", "2"], environment, clear),
        Contender("sweep, Ray", [*sweep, "--jobs", "2", "--on", "ray"], environment, clear),
        Contender("again", sweep, environment),
    ]


def _on_core(core: int, sweep: list[str]) -> list[str]:
    """A sweep of all cells by one process on one core, which shares nothing with another."""
    cache = Path.cwd() / f"cache-{core}"
    own = ["env", f"EDGECONV_CACHE_DIR={cache}", "taskset", "-c", str(core)]
    return [*own, *sweep, "--jobs", "1", "-o", f"on-{core}.sweep"]


class _Ended:
    def __init__(self, job: SweepJob) -> None:
        self.job = job

    def has_ended(self) -> bool:
        """Always."""
        return True

    def error(self) -> EdgeconvError | None:
        """None."""
        return None

    def close(self) -> None:
        """Nothing runs."""


class _Immediate:
    """Jobs of simulated length 0, which write the result of a real cell under their keys."""

    def __init__(self, width: int, results: Results, result: CellResult) -> None:
        self.width = width
        self._results, self._result = results, result

    def submit(self, job: SweepJob) -> _Ended:
        """Write the results."""
        for cell in job.cells:
            self._results.write(replace(self._result, key=cell.key))
        return _Ended(job)

    def wait(self, handles: Sequence[Handle]) -> None:
        """All have ended."""


def scheduling(scratch: Path, count: int) -> float:
    """Milliseconds per cell of everything but the jobs' own work, for 64 at once."""
    request: Any = SweepRequest(file=str(scratch / "sweep.toml"))
    real = make_plan(request, scratch / "sweep.sweep", lambda _: None)
    result = Results(scratch / "sweep.sweep").read(real.cells[0].key)
    assert result is not None
    plan = _enlarged(real, count)
    results = Results(scratch / f"simulated-{count}")
    started = time.perf_counter()
    run_jobs(plan.jobs, _Immediate(64, results, result), results, lambda *_: None)
    whole = summarize(plan, results, None, title="simulated", directory="")
    write_sweep(whole, results.directory)
    return round((time.perf_counter() - started) * 1e3 / count, 3)


def _enlarged(plan: SweepPlan, count: int) -> SweepPlan:
    """`count` cells in jobs of three, each with a key and a model of its own."""
    first = plan.jobs[0]
    jobs, cells = [], []
    for number in range(0, count, len(RECIPES)):
        own = tuple(
            replace(each, key=f"{number + at:064x}") for at, each in enumerate(first.cells)
        )[: count - number]
        jobs.append(replace(first, cells=own))
        cells += [
            PlannedCell(each.key, f"model-{number}", each.recipe, str(each.runtime), "data")
            for each in own
        ]
    return plan._replace(cells=tuple(cells), jobs=tuple(jobs))


if __name__ == "__main__":
    main()
