"""Quantisation-aware training beside the float model and plain int8, on the same test samples.

    python -m benchmarks.qat DATA [--tasks point_history,keypoint,...] [--seeds 3]

DATA is a directory with hand_gesture/, mnist/mnist.npz and audio_fsdd/fsdd.npz. Every QAT is
one `edgeconv convert --to qat` with the settings that are the defaults; what those are was
decided on training samples that were kept apart, never on the test samples that are judged by
here. Each result comes with its accuracy less that of the float model, and the 95 % interval of
that, paired by sample.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measuring import RESULTS, recorded, write_result
from benchmarks.qat_tasks import Task, tasks
from edgeconv import bench, convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.statistics.comparison import paired_difference
from edgeconv.types import Artifact, Measurement, Measuring, Qat, Recipe, Timing

CALIBRATION_SAMPLES = 500
_QUICK = Measuring(rounds=1, timing=Timing(repeats=20, seconds=0.05))
# Published whatever it is worth: how much plain int8 loses is what is to be seen.
_ANY_SNR_DB = -200.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", help="comma-separated; the others stay as recorded")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    makers = tasks(options.data.absolute())
    names = options.tasks.split(",") if options.tasks else list(makers)
    results = tasks_before()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["EDGECONV_CACHE_DIR"] = str(Path(scratch, "cache"))
        for name in names:
            place = Path(scratch, name)
            place.mkdir()
            results[name] = measure(makers[name](place), place, options.seeds)
            ordered = {one: results[one] for one in makers if one in results}
            write_result("qat", {"settings": msgspec.to_builtins(Qat()), "tasks": ordered})
    print((RESULTS / "qat.json").read_text(encoding="utf-8"))


def tasks_before() -> dict[str, object]:
    """The tasks recorded before with these settings."""
    before = recorded("qat")
    same = before and msgspec.convert(before["settings"], Qat) == Qat()
    return dict(before["tasks"]) if same else {}


def measure(task: Task, place: Path, seeds: int) -> dict[str, object]:
    """Every contender of a task, made and judged."""
    load = [os.getloadavg()[0]]
    trained = [f"qat, seed {seed}" for seed in range(seeds)]
    settings = dict(zip(trained, (Qat(seed=seed) for seed in range(seeds)), strict=True))
    made = made_by(task, place, settings)
    rows = judged(task, place, made)
    accuracies = [rows[name]["accuracy"] for name in trained]
    drop = rows["float"]["accuracy"] - statistics.fmean(accuracies)
    load.append(os.getloadavg()[0])
    return {
        "load_average": [round(value, 1) for value in load],
        "asked": {"least": task.least, "largest_drop": task.largest_drop},
        "float": rows["float"]["accuracy"],
        "qat_mean": round(statistics.fmean(accuracies), 5),
        "qat_mean_drop": round(drop, 5),
        "reached": drop <= task.largest_drop and statistics.fmean(accuracies) >= task.least,
        "contenders": rows,
    }


def made_by(task: Task, place: Path, settings: Mapping[str, Qat]) -> dict[str, Made]:
    """The artifact of each contender: plain int8 of both engines, and one for each setting."""
    recipes = {
        "int8": make_recipes(["int8"], engine="litert", min_snr_db=_ANY_SNR_DB),
        "int8 of TFLiteConverter": make_recipes(["int8"], engine="tflite", min_snr_db=_ANY_SNR_DB),
        **{name: make_recipes(["qat"], qat=one) for name, one in settings.items()},
    }
    made = {}
    for name, (recipe,) in recipes.items():
        print(f"{task.name}: {name}", flush=True)
        made[name] = make(task, place / "out" / name, recipe)
    return made


class Made(msgspec.Struct, frozen=True):
    """What a conversion gave, and how long it took; `failed` says why there is nothing."""

    file: Path | None
    artifact: Artifact | None
    wall_s: float
    failed: str = ""


def make(task: Task, directory: Path, recipe: Recipe) -> Made:
    started_s = time.perf_counter()
    conversion = convert(
        task.model,
        out=directory,
        to=[recipe],
        calibration=str(task.train),
        samples=CALIBRATION_SAMPLES,
        training=str(task.train) if recipe.qat else "",
    )
    wall_s = time.perf_counter() - started_s
    if conversion.failures:
        return Made(None, None, wall_s, conversion.failures[0].message)
    (artifact,) = conversion.artifacts
    return Made(directory / artifact.file, artifact, wall_s)


def judged(task: Task, place: Path, made: Mapping[str, Made]) -> dict[str, dict[str, Any]]:
    """Each contender's accuracy on the test samples, and what is known of it besides."""
    files = place / "files"
    files.mkdir()
    for name, one in made.items():
        if one.file:
            shutil.copy(one.file, files / f"{name}.tflite")
    report = bench([files], data=str(task.test), baseline=task.model, measuring=_QUICK)
    assert report.baseline is not None, "it was given"
    measured = {row.name: row for row in report.measurements}
    assert report.data is not None, "it was given"
    rows: dict[str, dict[str, Any]] = {
        "float": {**_accuracy(report.baseline), "samples": report.data.samples}
    }
    for name, one in made.items():
        if one.file is None or one.artifact is None:
            rows[name] = {"failed": one.failed}
            continue
        rows[name] = {
            **_beside(measured[name], report.baseline, measured.get("int8")),
            **_cost(one),
            "bytes": one.file.stat().st_size,
        }
    return rows


def _accuracy(row: Measurement) -> dict[str, Any]:
    assert row.accuracy is not None, f"{row.name}: {row.error}"
    return {"accuracy": round(row.accuracy.value, 5)}


def _beside(row: Measurement, floating: Measurement, int8: Measurement | None) -> dict[str, Any]:
    found = _accuracy(row)
    found["drop"], found["drop_interval"] = _difference(floating, row)
    if int8 is not None and int8 is not row:
        found["gain_over_int8"], found["gain_interval"] = _difference(row, int8)
    return found


def _difference(a: Measurement, b: Measurement) -> tuple[float, list[float]]:
    assert a.accuracy is not None
    assert b.accuracy is not None
    drop, low, high = paired_difference(a.accuracy.correct, b.accuracy.correct)
    return round(drop, 5), [round(low, 5), round(high, 5)]


def _cost(made: Made) -> dict[str, Any]:
    found: dict[str, Any] = {"wall_s": round(made.wall_s, 1)}
    record = made.artifact.qat if made.artifact else None
    if record is not None:
        found["training_s"] = round(record.training.seconds, 1)
        found["best_epoch"] = record.training.best_epoch
        if record.validated:
            found["validation_accuracy"] = round(record.validated.accuracy, 5)
    return found


if __name__ == "__main__":
    main()
