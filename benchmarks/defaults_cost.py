"""What the default of --methods costs: conversions with it beside those with --methods none.

    python -m benchmarks.defaults_cost DATA [--models cifar_mobilenet,…] [--work DIRECTORY]

The models are those of `benchmarks.quality`. Each conversion starts with an empty cache and an
empty directory. CPU seconds are those of all processes, and the fairer measure where the machine
does other work. `trials` has what was tried for each recipe.
"""

import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import quality_models
from benchmarks.measuring import cpu_seconds
from benchmarks.quality_models import TrainedModel
from edgeconv import convert
from edgeconv.types import FOUR_BIT, RECIPE_NAMES, Conversion

ROUNDS, SAMPLES = 2, 200
EIGHT = (*RECIPE_NAMES, *FOUR_BIT)
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "six, none": (RECIPE_NAMES, "none"),
    "six, default": (RECIPE_NAMES, "auto"),
    "eight, none": (EIGHT, "none"),
    "eight, default": (EIGHT, "auto"),
    "int8, none": (("int8",), "none"),
    "int8, default": (("int8",), "auto"),
}
MODELS = (
    "mnist_cnn",
    "cifar_mobilenet",
    "cifar_mobilenetv2",
    "cifar_resnetv2",
    "flowers_mobilenet",
)


def main() -> None:
    quality_models.run("defaults_cost", __doc__.splitlines()[0], measure, summary, MODELS)


def measure(model: TrainedModel, scratch: Path) -> dict[str, Any]:
    """Every case of a model, in turns, and how each compares with --methods none."""
    cases: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for number in range(ROUNDS):
        for name, (recipes, methods) in CASES.items():
            print(f"{model.name}: {name}, round {number + 1} of {ROUNDS}", flush=True)
            directory = scratch / f"{name} {number}"
            os.environ["EDGECONV_CACHE_DIR"] = str(scratch / f"cache of {name} {number}")
            started_s, before_s = time.perf_counter(), cpu_seconds()
            conversion = convert(
                str(model.file),
                out=directory,
                to=",".join(recipes),
                calibration=str(model.calibration),
                samples=SAMPLES,
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
        "calibration_samples": SAMPLES,
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "six_default_beside_six_none": ratios("six, default", "six, none"),
        "eight_default_beside_eight_none": ratios("eight, default", "eight, none"),
        "eight_default_beside_six_none": ratios("eight, default", "six, none"),
        "int8_default_beside_int8_none": ratios("int8, default", "int8, none"),
        "medians": medians,
        "runs": cases,
    }


def summary(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The largest ratio of CPU seconds, by what is divided."""
    ratios = [name for name in next(iter(models.values())) if "_beside_" in name]
    return {name: max(model[name]["cpu_s"] for model in models.values()) for name in ratios}


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
