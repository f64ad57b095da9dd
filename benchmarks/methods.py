"""What each post-training method costs: seconds by samples, and by layers.

    python -m benchmarks.methods

The model is a chain of equal convolutions with random weights, which cost what trained ones do.
The cost of a method is the time of making the int8 file with it less that of making it without,
in one process, the median of repeats, in turns. `linear` is the exponent of the best power law
through the times: 1 is linear, less is cheaper.
"""

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import write_result
from edgeconv import convert
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.worker import settle_process
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import CalibrationRange, PostTrainingMethod

SAMPLES = (32, 64, 128, 256)
LAYERS = (4, 8, 16, 32)
# What is varied, while the other stays.
FIXED_SAMPLES, FIXED_LAYERS = 128, 8
_KEY = "serving_default"
_SETTINGS: Mapping[str, tuple[CalibrationRange, tuple[PostTrainingMethod, ...]]] = {
    "minmax": ("minmax", ()),
    "percentile": ("percentile", ()),
    "mse": ("mse", ()),
    "kl": ("kl", ()),
    "equalization": ("minmax", ("equalization",)),
    "bias-correction": ("minmax", ("bias-correction",)),
    "rounding and bias-correction": ("minmax", ("bias-correction", "rounding")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    settle_process()
    with tempfile.TemporaryDirectory() as scratch:
        models = {layers: chain(Path(scratch), layers) for layers in LAYERS}
        by_samples = {samples: costs(models[FIXED_LAYERS], samples, repeats) for samples in SAMPLES}
        by_layers = {
            layers: costs(model, FIXED_SAMPLES, repeats) for layers, model in models.items()
        }
    write_result(
        "methods",
        {
            "model": "convolutions of 3x3, 16 to 16 channels, over 32x32",
            "repeats": repeats,
            "seconds_by_samples": by_samples,
            "seconds_by_layers": by_layers,
            "exponent_by_samples": exponents(by_samples),
            "exponent_by_layers": exponents(by_layers),
        },
    )


def chain(scratch: Path, layers: int) -> bytes:
    """The float32 .tflite of so many convolutions."""
    saved = scratch / f"chain{layers}"
    script = Path(__file__).parent / "peers" / "make_chain.py"
    subprocess.run([sys.executable, script, saved, str(layers)], check=True, capture_output=True)
    conversion = convert(saved, out=scratch / f"out{layers}", to="float32")
    return (Path(conversion.directory) / conversion.artifacts[0].file).read_bytes()


def costs(model: bytes, samples: int, repeats: int) -> dict[str, float]:
    """The seconds that each setting adds to plain rounding; those of the latter as they are."""
    values = np.random.default_rng(0).normal(size=(samples, 32, 32, 16)).astype(np.float32)
    feeds = {_KEY: Feed({"image": values}, 1)}
    taken: dict[str, list[float]] = {name: [] for name in _SETTINGS}
    for turn in range(repeats + 1):
        for name, setting in _SETTINGS.items():
            seconds = _seconds(model, feeds, MethodSettings(*setting))
            # The first turn loads what the others find loaded.
            if turn:
                taken[name].append(seconds)
    medians = {name: statistics.median(each) for name, each in taken.items()}
    plain = medians.pop("minmax")
    return {
        "minmax": round(plain, 3),
        **{name: round(max(0.0, value - plain), 3) for name, value in medians.items()},
    }


def _seconds(model: bytes, feeds: Mapping[str, Feed], setting: MethodSettings) -> float:
    (recipe,) = make_recipes(["int8"], methods=["none"])
    started_s = time.perf_counter()
    make_file(CalibratedGraph(model, feeds, threads=2), recipe, setting)
    return time.perf_counter() - started_s


def exponents(table: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """How the time of each grows: the slope of the logarithms, by least squares."""
    found = {}
    for name in _SETTINGS:
        times = [(count, row[name]) for count, row in table.items() if row[name] > 0]
        if len(times) > 1:
            found[name] = round(_slope(times), 2)
    return found


def _slope(times: Sequence[tuple[int, float]]) -> float:
    x = [math.log(count) for count, _ in times]
    y = [math.log(value) for _, value in times]
    return statistics.linear_regression(x, y).slope


if __name__ == "__main__":
    main()
