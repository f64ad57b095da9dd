"""A model that scales its input, with samples that were scaled before: warned of, or refused."""

from pathlib import Path

import numpy as np
import pytest

from edgeconv import bench, convert
from edgeconv.types import Conversion

ZOO = "keras_zoo:scaling"


def warned(done: Conversion) -> list[str]:
    """What is said of the model's own scaling."""
    (artifact,) = done.artifacts
    return [each for each in artifact.verification.warnings if "itself" in each]


def rows(each_run: tuple[str, ...], in_turn: tuple[str, ...]) -> list[object]:
    return [*each_run, *(pytest.param(each, marks=pytest.mark.slow) for each in in_turn)]


@pytest.mark.parametrize(
    "model", rows(("three.keras", "divided"), ("two.keras", "offset.keras", "efficient.keras"))
)
def test_samples_that_are_scaled_already_are_warned_of(model, models, tmp_path):
    done = convert(
        str(models / model),
        out=str(tmp_path),
        to=["int8"],
        calibration=str(models / "unlabeled.npz"),
        allow_suspect_calibration=True,
    )
    (warning,) = warned(done)
    assert "'image'" in warning
    assert "scale=255" in warning


def refused_hint(model: Path, samples: Path, out: Path) -> str:
    """What to do next, of a model without a file because of its samples."""
    done = convert(str(model), out=str(out), to=["int8"], calibration=str(samples))
    assert done.artifacts == ()
    (failure,) = done.failures
    assert failure.error == "SuspectCalibration"
    return failure.hint


@pytest.mark.parametrize("model", ["three.keras", "offset.keras"])
def test_labels_that_agree_make_it_certain(model, models, tmp_path):
    hint = refused_hint(models / model, models / "once.npz", tmp_path)
    assert "--preprocess 'scale=255'" in hint


@pytest.mark.parametrize("samples", ["digits.npz", "dark.npz"])
def test_pixels_are_not_warned_of_even_if_they_are_dark(samples, models, tmp_path):
    done = convert(
        str(models / "three.keras"),
        out=str(tmp_path),
        to=["int8"],
        calibration=str(models / samples),
        allow_suspect_calibration=True,
    )
    assert warned(done) == []


def test_a_normalization_of_pixels_tells_by_its_statistics(models, tmp_path):
    assert "scale=255" in refused_hint(
        models / "normalized.keras", models / "unlabeled.npz", tmp_path
    )


@pytest.fixture(scope="module")
def pixels(models, tmp_path_factory) -> Path:
    """The digits as images are stored, in bytes."""
    file = tmp_path_factory.mktemp("pixels") / "pixels.npz"
    with np.load(models / "digits.npz") as stored:
        np.savez(file, image=stored["image"].astype(np.uint8), labels=stored["labels"])
    return file


@pytest.mark.parametrize(
    "model",
    rows(
        ("three.keras", "normalized.keras"),
        ("two.keras", "offset.keras", "efficient.keras", "divided"),
    ),
)
def test_bytes_are_taken_by_a_model_that_scales_them_itself(model, models, pixels, tmp_path):
    done = convert(
        str(models / model),
        out=str(tmp_path / "out"),
        to=["float32", "float16", "dynamic", "int8", "int16x8"],
        calibration=str(pixels),
    )
    assert done.failures == ()
    for each in done.artifacts:
        (spec,) = each.signatures[0].inputs
        assert (spec.dtype, spec.is_scaled) == ("float32", True)
    for record in done["int8"].calibration:
        (given,) = record.inputs
        assert (given.is_scaled, given.is_whole, given.high) == (True, True, 255)
    files = [str(done[each.recipe.name].path) for each in done.artifacts]
    report = bench(files, data=str(pixels), rounds=1, seconds=0.1)
    assert len(report.measurements) == len(files)
