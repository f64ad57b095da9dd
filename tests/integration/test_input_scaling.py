"""A table whose columns have different sizes, normalized by the model itself."""

import pytest

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes

ZOO = "keras_zoo:regression"


def test_the_regression_tutorial_converts_by_default_and_says_what_stays_in_float(models, tmp_path):
    recipes = make_recipes(["int8", "int16x8", "int8x4"])
    made = convert(
        models / "table.keras",
        out=tmp_path / "out",
        to=recipes,
        calibration=str(models / "table.npz"),
    )
    assert not made.failures
    by_name = {artifact.recipe.name: artifact for artifact in made.artifacts}
    assert by_name["int8"].verification.outputs[0].snr_db > 30
    assert by_name["int16x8"].verification.outputs[0].snr_db > 40
    for artifact in made.artifacts:
        assert set(artifact.float_operators) <= {"MUL", "SUB"}
        assert artifact.float_operators
        assert [note for note in artifact.notes if "normalization" in note]
        assert artifact.recipe.layers == ()


@pytest.mark.slow
def test_an_integer_input_of_it_says_what_that_costs(models, tmp_path):
    recipes = make_recipes(["int8"], input_type="int8", output_type="int8", min_snr_db=-10)
    made = convert(
        models / "table.keras",
        out=tmp_path / "out",
        to=recipes,
        calibration=str(models / "table.npz"),
    )
    (artifact,) = made.artifacts
    assert artifact.float_operators == ()
    assert [note for note in artifact.notes if "without --io" in note]
