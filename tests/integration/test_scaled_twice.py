"""A model that scales its input, with samples that were scaled before: warned of, or refused."""

from pathlib import Path

import pytest
from forking import output_of
from places import SUPPORT

from edgeconv import convert
from edgeconv.types import Conversion

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*np.object.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of scaling_zoo.py."""
    root = tmp_path_factory.mktemp("scaling")
    output_of(SUPPORT / "scaling_zoo.py", root)
    return root


def warned(done: Conversion) -> list[str]:
    """What is said of the model's own scaling."""
    (artifact,) = done.artifacts
    return [each for each in artifact.verification.warnings if "itself" in each]


@pytest.mark.parametrize(
    "model", ["three.keras", "two.keras", "offset.keras", "efficient.keras", "divided"]
)
def test_samples_that_are_scaled_already_are_warned_of(model, place, tmp_path):
    done = convert(
        str(place / model),
        out=str(tmp_path),
        to=["int8"],
        calibration=str(place / "unlabeled.npz"),
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
def test_labels_that_agree_make_it_certain(model, place, tmp_path):
    hint = refused_hint(place / model, place / "once.npz", tmp_path)
    assert "--preprocess 'scale=255'" in hint


@pytest.mark.parametrize("samples", ["digits.npz", "dark.npz"])
def test_pixels_are_not_warned_of_even_if_they_are_dark(samples, place, tmp_path):
    done = convert(
        str(place / "three.keras"),
        out=str(tmp_path),
        to=["int8"],
        calibration=str(place / samples),
        allow_suspect_calibration=True,
    )
    assert warned(done) == []


def test_a_normalization_of_pixels_tells_by_its_statistics(place, tmp_path):
    assert "scale=255" in refused_hint(
        place / "normalized.keras", place / "unlabeled.npz", tmp_path
    )
