"""A model whose batch normalization has not converged is warned of; its samples are not refused."""

from pathlib import Path

import pytest
from forking import output_of
from places import SUPPORT

from edgeconv import convert
from edgeconv.types import Conversion

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*np.object.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
LEFT = 0.99**80


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unsettled")
    output_of(SUPPORT / "unsettled_zoo.py", root)
    return root


def converted(place: Path, samples: str, out: Path) -> Conversion:
    model, data = str(place / "digits.keras"), str(place / samples)
    return convert(model, ["dynamic", "int8"], out=out, calibration=data, methods="none")


def test_right_samples_are_not_refused_and_the_share_of_the_start_is_named(place, tmp_path):
    done = converted(place, "right.npz", tmp_path)
    assert done.failures == ()
    dynamic, int8 = done.artifacts
    (suspicion,) = int8.calibration[0].suspicions
    assert not suspicion.is_certain
    assert f"variance = {LEFT:.2g} + {1 - LEFT:.2g} ×" in suspicion.reason
    # It used no samples.
    assert not [each for each in dynamic.verification.warnings if "calibration" in each]


def test_wrong_samples_are_refused_all_the_same(place, tmp_path):
    done = converted(place, "wrong.npz", tmp_path)
    assert [each.recipe.name for each in done.artifacts] == ["dynamic"]
    (failure,) = done.failures
    assert (failure.recipe, failure.error) == ("int8", "SuspectCalibration")
