"""Calibration sets with the mistakes that people make, and what is said of each."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration_faults import NAMED, RIGHT, TRAINED
from forking import output_of, run
from places import SHARED, SUPPORT
from zoo import stocked

import edgeconv
from edgeconv.types import Conversion, Execution

PHOTOS = SHARED / "cifar10_jpeg_dev/cifar10_jpeg_dev.npz"
pytestmark = pytest.mark.skipif(not PHOTOS.exists(), reason="the shared CIFAR-10 photos are absent")

Found = dict[str, dict[str, tuple[str, float]]]

WITH_LAYERS, WITHOUT = ["photos", "sensors"], ["plain_photos", "plain_sensors"]
# An int8 file of right samples loses less than this.
LITTLE = 0.02


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """A directory with models, and table.json with the verdicts of calibration_zoo.py."""
    root = stocked(tmp_path_factory.mktemp("calibration"), "keras_zoo:calibrated", PHOTOS)
    said = output_of(SUPPORT / "calibration_zoo.py", root)
    (root / "table.json").write_text(said.strip().splitlines()[-1])
    return root


@pytest.fixture(scope="module")
def table(zoo) -> Found:
    found: Found = json.loads((zoo / "table.json").read_text())
    return found


def faults_of(found: Found, model: str) -> dict[str, str]:
    """What is said of each fault."""
    others = {name: each for name, each in found[model].items() if not name.startswith(RIGHT)}
    return {name: said for name, (said, _) in others.items() if name != TRAINED}


def harmful(found: Found, model: str) -> set[str]:
    """The faults whose int8 file has lost accuracy on right samples."""
    least = found[model][TRAINED][1] - LITTLE
    return {name for name in faults_of(found, model) if found[model][name][1] < least}


@pytest.mark.slow
@pytest.mark.parametrize("model", WITH_LAYERS + WITHOUT)
def test_no_right_set_is_suspected(table, model):
    right = {name: each for name, each in table[model].items() if name.startswith(RIGHT)}
    assert len(right) == 6
    assert {said for said, _ in right.values()} == {"-"}, right


@pytest.mark.slow
@pytest.mark.parametrize("model", WITH_LAYERS)
def test_every_fault_that_costs_something_is_found_by_normalization_layers(table, model):
    faults = faults_of(table, model)
    assert {n: faults[n] for n in NAMED if n in faults and faults[n] != "wrong"} == {}
    costly = harmful(table, model)
    assert len(costly) >= 5
    assert [name for name in costly if faults[name] == "-"] == []
    assert sum(said != "-" for said in faults.values()) >= 14, faults


@pytest.mark.slow
def test_most_faults_are_found_without_such_layers(table):
    """Where no layer keeps statistics, the answers and the samples tell less."""
    faults = faults_of(table, "plain_photos")
    assert "-" not in [faults[name] for name in NAMED if name in faults]
    assert sum(said != "-" for said in faults.values()) > len(faults) / 2, faults


@pytest.fixture(scope="module")
def stored(zoo) -> tuple[Path, Path]:
    """Samples of the photos as they should be, and as they are stored."""
    with np.load(zoo / "photos.npz") as archive:
        image = archive["image"][:80]
    np.savez(zoo / "right.npz", image=image)
    np.savez(zoo / "unscaled.npz", image=np.rint(image * 255).astype(np.float32))
    return zoo / "right.npz", zoo / "unscaled.npz"


def converted(zoo: Path, out: str, **options: Any) -> Conversion:
    return edgeconv.convert(
        zoo / "photos", out=zoo / out, execution=Execution(use_cache=False), **options
    )


@pytest.mark.slow
def test_a_set_that_cannot_be_right_refuses_the_calibrated_recipes_only(zoo, stored):
    """The file says what is wrong, what fits, and its exit code is that of refused input."""
    command = ["convert", zoo / "photos", "--to", "float16,int8", "--calibration", stored[1]]
    ended = run([sys.executable, "-m", "edgeconv", *command, "-o", zoo / "wrong", "--no-cache"])
    assert ended.returncode == 3, ended.stderr
    assert "int8: the calibration samples of" in ended.stderr
    assert "they fit with --preprocess 'scale=1/255'" in ended.stderr
    assert "--allow-suspect-calibration" in ended.stderr
    assert "'image': 0 to 255, mean " in ended.stderr
    assert {path.name for path in (zoo / "wrong").glob("*.tflite")} == {"photos.float16.tflite"}
    advised = [*command, "--preprocess", "scale=1/255", "-o", zoo / "advised", "--no-cache"]
    followed = run([sys.executable, "-m", "edgeconv", *advised])
    assert followed.returncode == 0, followed.stderr


@pytest.mark.slow
def test_what_is_allowed_is_published_with_its_warnings(zoo, stored):
    made = converted(
        zoo, "allowed", to="int8", calibration=str(stored[1]), allow_suspect_calibration=True
    )
    (artifact,) = made.artifacts
    (record,) = artifact.calibration
    assert record.distance > 10
    assert any(suspicion.is_certain for suspicion in record.suspicions)
    assert any(w.startswith("calibration samples: ") for w in artifact.verification.warnings)


@pytest.mark.slow
def test_a_right_set_is_recorded_with_its_range_and_not_suspected(zoo, stored):
    made = converted(zoo, "right", to="int8", calibration=str(stored[0]))
    (artifact,) = made.artifacts
    (record,) = artifact.calibration
    assert record.suspicions == ()
    assert record.distance < 0.9
    (image,) = record.inputs
    assert (image.name, image.low >= 0, image.high <= 1) == ("image", True, True)
    assert f"calibrated on {record.samples} samples: 'image': 0 to 1, mean" in str(made)
    assert not any("calibration samples" in w for w in artifact.verification.warnings)
