"""What the default of --methods costs: conversions with it beside those with --methods none.

    python -m benchmarks.defaults_cost [--samples 200] [--model MODEL SOURCE --name NAME]

The model is the MobileNetV2-224 of benchmarks.convert unless another is named with its SOURCE of
calibration samples. Each conversion starts with an empty cache and an empty directory. CPU seconds
are those of all processes, and the fairer measure where the machine does other work. `trials` has
what was tried for each recipe.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import cpu_seconds, recorded, write_result
from edgeconv import convert
from edgeconv.types import FOUR_BIT, RECIPE_NAMES, Conversion

PEERS = Path(__file__).parent / "peers"
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "six, none": (RECIPE_NAMES, "none"),
    "six, default": (RECIPE_NAMES, "auto"),
    "eight, default": ((*RECIPE_NAMES, *FOUR_BIT), "auto"),
    "int8, none": (("int8",), "none"),
    "int8, default": (("int8",), "auto"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--model", nargs=2, metavar=("MODEL", "SOURCE"))
    parser.add_argument("--name", default="MobileNetV2-224, random weights")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model, source = options.model or mobilenet(Path(scratch), options.samples)
        rows = measure(model, source, options.samples, options.repeats, Path(scratch))
    models = {**recorded("defaults_cost").get("models", {}), options.name: rows}
    print(write_result("defaults_cost", {"models": models}).read_text(encoding="utf-8"))


def mobilenet(scratch: Path, samples: int) -> tuple[str, str]:
    """The SavedModel and its samples, of which a few are left to verify with."""
    command = [sys.executable, str(PEERS / "make_mobilenet.py"), str(scratch), str(samples)]
    subprocess.run(command, check=True, capture_output=True)
    return str(scratch / "mobilenet_v2"), str(scratch / "samples.npz")


def measure(model: str, source: str, samples: int, repeats: int, scratch: Path) -> dict[str, Any]:
    """Every case of a model, in turns, and how each compares with --methods none."""
    cases: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for number in range(repeats):
        for name, (recipes, methods) in CASES.items():
            print(f"{Path(model).stem}: {name}, round {number + 1} of {repeats}", flush=True)
            directory = scratch / f"{name} {number}"
            os.environ["EDGECONV_CACHE_DIR"] = str(scratch / f"cache of {name} {number}")
            started_s, before_s = time.perf_counter(), cpu_seconds()
            conversion = convert(
                model,
                out=directory,
                to=",".join(recipes),
                calibration=source,
                samples=samples,
                methods=[methods],
                min_snr_db=-200.0,
            )
            cases[name].append(
                {
                    "wall_s": round(time.perf_counter() - started_s, 2),
                    "cpu_s": round(cpu_seconds() - before_s, 2),
                    "trials": trials_of(conversion),
                }
            )
    medians = {
        name: {unit: statistics.median(run[unit] for run in runs) for unit in ("wall_s", "cpu_s")}
        for name, runs in cases.items()
    }

    def ratios(name: str, plain: str) -> dict[str, float]:
        return {
            unit: round(medians[name][unit] / medians[plain][unit], 2) for unit in medians[name]
        }

    return {
        "calibration_samples": samples,
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "six_default_beside_six_none": ratios("six, default", "six, none"),
        "eight_default_beside_six_none": ratios("eight, default", "six, none"),
        "int8_default_beside_int8_none": ratios("int8, default", "int8, none"),
        "medians": medians,
        "runs": cases,
    }


def trials_of(conversion: Conversion) -> dict[str, Any]:
    """By recipe, what was tried and taken."""
    return {
        artifact.recipe.name: {
            "methods": list(record.methods),
            "closeness": record.closeness,
            "tried": [list(trial.methods) for trial in record.trials],
            "snr_db": [round(trial.snr_db, 1) for trial in record.trials],
            "agreement": [trial.agreement for trial in record.trials],
        }
        for artifact in conversion.artifacts
        if (record := artifact.post_training) is not None and record.trials
    }


if __name__ == "__main__":
    main()
