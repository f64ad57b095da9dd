"""A trained classifier with few and many calibration samples, in an order that parts them badly."""

from pathlib import Path

import numpy as np
import pytest
from sources import split_taken

from edgeconv import convert, debug
from edgeconv.data import Samples
from edgeconv.quantize.calibrate import Feed
from edgeconv.quantize.choose import _parts
from edgeconv.requests.recipes import make_recipes

ZOO = "keras_zoo:digits"

SURE = 0.9
FEWEST_CALIBRATED = 24


def on_both_sides(models: Path, count: int, file: Path) -> Path:
    """As many digits, in a random order whose first fold is surer than 0.9 and another is not."""
    with np.load(models / "digits.npz") as stored:
        pixels, confidence = stored["pixels"], stored["confidence"]
    for seed in range(2000):
        chosen = np.random.default_rng(seed).permutation(len(pixels))[:count]
        calibration, _ = split_taken(
            Samples({"pixels": pixels[chosen], "sure": confidence[chosen]}, None, ""), None
        )
        sure = calibration.arrays["sure"]
        parts, held_back = _parts({"": Feed(calibration.arrays, 1)})
        means = [sure[part[""]].mean() for part in parts[-held_back:]]
        if len(sure) >= FEWEST_CALIBRATED and min(means) <= SURE < means[0]:
            np.savez(file, pixels=pixels[chosen])
            return file
    pytest.fail("no such order")


@pytest.mark.parametrize("count", [28, 60, 150, 220])
def test_folds_on_both_sides_of_a_confidence_of_nine_tenths(models, count, tmp_path):
    samples = str(on_both_sides(models, count, tmp_path / "c.npz"))
    recipes = make_recipes(["int8", "int8x4", "dynamic"])
    made = convert(models / "digits.keras", out=tmp_path / "out", to=recipes, calibration=samples)
    assert not made.failures
    for artifact in made.artifacts:
        record = artifact.post_training
        assert record.trials


def test_debug_of_such_a_classifier(models, tmp_path):
    samples = str(on_both_sides(models, 60, tmp_path / "c.npz"))
    found = debug(models / "digits.keras", samples)
    assert found.snr_db > 20
