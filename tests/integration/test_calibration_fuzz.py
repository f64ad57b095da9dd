"""Classifiers are converted by default with however many samples, in any order, to as good a file.

Among the calibration samples are those by which methods are chosen; how they are dealt out depends
on how many there are.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from once import made_once
from places import SHARED
from zoo import stocked

import edgeconv
from benchmarks.quality_models import trained_models

SIZES = (16, 24, 40, 100, 150, 191, 192, 500)
CHEAP = {24, 150}
# Those of benchmarks/quality_models.py that give one class for each sample.
RECORDED = (
    *("point_history", "mnist_cnn", "spoken_digits", "spoken_waveform", "spoken_lstm"),
    *("spoken_transformer", "gesture_windows", "gesture_gru", "polarity_cnn"),
    *("cifar_mobilenet", "cifar_mobilenet_quarter", "cifar_resnet8", "cifar_mobilenetv2"),
    *("cifar_mobilenetv3", "cifar_resnetv2", "flowers_mobilenet"),
)


@pytest.fixture(scope="module")
def digits(shared) -> Path:
    """A model whose mean confidence is about .9, and samples that it was not trained with."""

    def make(root: Path) -> None:
        stocked(root, "keras_zoo:digits")
        with np.load(root / "digits.npz") as archive:
            pixels = archive["pixels"]
        np.savez(root / "calibration.npz", pixels=pixels)
        np.savez(root / "test.npz", pixels=pixels)

    return made_once(shared / "digits-of-any-size", make)


@pytest.mark.parametrize(
    "size", [pytest.param(n, marks=() if n in CHEAP else pytest.mark.slow) for n in SIZES]
)
def test_a_classifier_of_digits_is_as_good_with_any_number_of_samples(size, digits, tmp_path):
    for seed in range(2):
        out = tmp_path / str(seed)
        agreement = converted(digits / "digits.keras", digits, size, seed, out)
        assert agreement > 0.96, seed


@pytest.mark.long
@pytest.mark.skipif(not SHARED.is_dir(), reason="the data of the recorded models is not here")
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_classifier_is_as_good_with_any_number_of_samples(name, tmp_path):
    place = tmp_path / name
    place.mkdir()
    model = trained_models(SHARED)[name](place)
    agreements = {
        size: converted(model.file, place, size, size, tmp_path / str(size)) for size in SIZES
    }
    most = agreements[SIZES[-1]]
    # Of 500 test samples, at two deviations.
    noise = 2 * math.sqrt(max(most * (1 - most), 0.01) / 500) + 0.02
    assert min(agreements.values()) > most - noise, agreements


def converted(model: Path, samples: Path, size: int, seed: int, out: Path) -> float:
    """The share of test samples of which int8, by default, names the class of float32."""
    out.mkdir()
    with np.load(samples / "calibration.npz") as archive:
        arrays = dict(archive)
    order = np.random.default_rng(seed).permutation(len(next(iter(arrays.values()))))[:size]
    np.savez(out / "some.npz", **{name: x[order] for name, x in arrays.items()})
    conversion = edgeconv.convert(
        str(model), out=out / "files", to=["float32", "int8"], calibration=str(out / "some.npz")
    )
    assert conversion.failures == ()
    files = {
        artifact.recipe.name: out / "files" / artifact.file for artifact in conversion.artifacts
    }
    with np.load(samples / "test.npz") as archive:
        test = {name: x[:500] for name, x in archive.items() if name != "labels"}
    classes = {name: classes_of(file, test) for name, file in files.items()}
    return float(np.mean(classes["float32"] == classes["int8"]))


def classes_of(file: Path, samples: dict[str, Any]) -> np.ndarray:
    """The class of each sample, which are run one at a time."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(file)).get_signature_runner()
    count = len(next(iter(samples.values())))
    runs = [runner(**{n: x[i : i + 1] for n, x in samples.items()}) for i in range(count)]
    return np.array([next(iter(run.values())).argmax() for run in runs])
