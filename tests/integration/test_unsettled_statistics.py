"""A model whose batch normalization has not converged is warned of; its samples are not refused."""

from pathlib import Path

import pytest

from edgeconv import convert
from edgeconv.types import Conversion

ZOO = "keras_zoo:unsettled"

pytestmark = [pytest.mark.slow]
LEFT = 0.99**80


def converted(models: Path, samples: str, out: Path) -> Conversion:
    model, data = str(models / "digits.keras"), str(models / samples)
    return convert(model, ["dynamic", "int8"], out=out, calibration=data, methods="none")


def test_right_samples_are_not_refused_and_the_share_of_the_start_is_named(models, tmp_path):
    done = converted(models, "right.npz", tmp_path)
    assert done.failures == ()
    dynamic, int8 = done.artifacts
    (suspicion,) = int8.calibration[0].suspicions
    assert not suspicion.is_certain
    assert f"variance = {LEFT:.2g} + {1 - LEFT:.2g} ×" in suspicion.reason
    # It used no samples.
    assert not [each for each in dynamic.verification.warnings if "calibration" in each]


def test_wrong_samples_are_refused_all_the_same(models, tmp_path):
    done = converted(models, "wrong.npz", tmp_path)
    assert [each.recipe.name for each in done.artifacts] == ["dynamic"]
    (failure,) = done.failures
    assert (failure.recipe, failure.error) == ("int8", "SuspectCalibration")
