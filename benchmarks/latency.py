"""The latency that `edgeconv bench` measures, beside that of LiteRT's own `litert-benchmark`.

    python -m benchmarks.latency [--rounds 5]

For every model and round one fresh process of each: litert-benchmark, and what `bench` starts for
its runtimes litert and litert with --accelerator compiled; the order changes from round to round.
One thread, XNNPACK, as many warm-up and timed invokes at least. The peer tells its median to
10 µs. What is compared is the median over the rounds of the ratio of two processes' medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from benchmarks.measuring import write_result
from edgeconv.measure.machine import LoadMonitor
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.kinds.python import open_runtime
from edgeconv.runtimes.tensors import signature_of
from edgeconv.types import Accelerator, RuntimeChoice, Timing

PEERS = Path(__file__).parent / "peers"
PEER = "litert-benchmark"
RUNS = 100
WARMUP = 20
TARGET = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=Path, help="a directory with the models, made before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        models = options.models or Path(scratch, "models")
        if not options.models:
            make_models(models)
        result = measure(sorted(models.glob("*.tflite")), Path(scratch), options.rounds)
    print(write_result("latency", result).read_text(encoding="utf-8"))


def measure(files: Sequence[Path], scratch: Path, rounds: int) -> dict[str, object]:
    medians_us: dict[str, dict[str, list[float]]] = {file.stem: {} for file in files}
    with LoadMonitor() as watch:
        for number in range(rounds):
            print(f"round {number + 1}/{rounds}", flush=True)
            for file in files:
                for name, run in turned(contenders(file, scratch), number):
                    medians_us[file.stem].setdefault(name, []).append(run())
    furthest = {
        name: max(abs(beside(found, name) - 1) for found in medians_us.values())
        for name in get_args(Accelerator)
    }
    return {
        "models": len(files),
        "rounds": rounds,
        "threads": 1,
        "target": f"within {TARGET:.0%} of {PEER}",
        "largest_difference": {name: round(value, 4) for name, value in furthest.items()},
        "load_average": [watch.conditions.load_before, watch.conditions.load_after],
        "used_by_other_processes": round(watch.conditions.busy or 0.0, 3),
        "medians": {name: record(found) for name, found in medians_us.items()},
    }


def make_models(directory: Path) -> None:
    directory.mkdir()
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    subprocess.run([sys.executable, PEERS / "make_zoo.py", directory], check=True, env=quiet)


def contenders(file: Path, scratch: Path) -> dict[str, Callable[[], float]]:
    """What to run of one model: a function each, which returns the median in microseconds."""
    return {
        PEER: lambda: peer_us(file, scratch / "peer.json"),
        "interpreter": lambda: edgeconv_us(file, scratch, "interpreter"),
        "compiled": lambda: edgeconv_us(file, scratch, "compiled"),
    }


def turned(named: dict[str, Callable[[], float]], by: int) -> list[tuple[str, Callable[[], float]]]:
    items = list(named.items())
    return items[by % len(items) :] + items[: by % len(items)]


def edgeconv_us(file: Path, scratch: Path, accelerator: Accelerator) -> float:
    model = Model(file=file)
    rng = np.random.default_rng(0)
    inputs = {
        spec.name: rng.uniform(-1, 1, spec.shape).astype(np.float32)
        for spec in signature_of(model).inputs
    }
    timing = Timing(warmup=WARMUP, repeats=RUNS, seconds=60.0)
    settings = RuntimeSettings(scratch=scratch, accelerator=accelerator)
    with open_runtime(RuntimeChoice(name="litert"), settings) as runtime:
        return statistics.median(runtime.time(model, inputs, timing).samples_us)


def peer_us(file: Path, answer: Path) -> float:
    command = [str(Path(sys.executable).with_name(PEER)), f"--model={file}", "--num_threads=1"]
    counts = [f"--num_runs={RUNS}", f"--warmup_runs={WARMUP}", f"--result_json={answer}"]
    subprocess.run([*command, *counts], check=True, capture_output=True)
    return float(json.loads(answer.read_text(encoding="utf-8"))["latency"]["median_ms"]) * 1e3


def record(medians_us: dict[str, list[float]]) -> dict[str, object]:
    return {
        "median_us": {
            name: round(statistics.median(values), 1) for name, values in medians_us.items()
        },
        "beside_the_peer": {
            name: round(beside(medians_us, name), 4) for name in medians_us if name != PEER
        },
        "rounds_us": {name: [round(v, 1) for v in values] for name, values in medians_us.items()},
    }


def beside(medians_us: dict[str, list[float]], name: str) -> float:
    """The median over the rounds of the ratio to the peer: both of a round meet the same load."""
    pairs = zip(medians_us[name], medians_us[PEER], strict=True)
    return statistics.median(ours / peers for ours, peers in pairs)


if __name__ == "__main__":
    main()
