"""Activations of Keras, in whose files the exponential of a large number was."""

import numpy as np
import pytest

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["softplus", "selu"])
def test_an_activation_of_large_numbers_is_exact_and_all_in_integers(activation, tmp_path):
    """Softplus of 200 was 88.4 in a float file, and no scale served it in int8."""
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    wide = keras.initializers.RandomNormal(stddev=30)
    model = keras.Sequential(
        [keras.Input((8,), name="x"), layers.Dense(12, activation, kernel_initializer=wide)]
    )
    x = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    assert np.asarray(model(x)).max() > 150
    recipes = make_recipes(["float32", "float16", "int8", "int16x8"], methods=("none",))
    made = convert(model, out=tmp_path / "out", to=recipes, calibration=x)
    assert not made.failures
    for recipe, least in (("float32", 100), ("float16", 60), ("int8", 30), ("int16x8", 35)):
        artifact = made[recipe]
        assert artifact.verification.outputs[0].snr_db > least
        assert recipe.startswith("float") or artifact.float_operators == ()
    assert "EXP" not in {each.name for each in made["float32"].operators}
