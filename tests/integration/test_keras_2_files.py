"""Files of Keras 2, which tf_keras is, that Keras 3 would refuse or compute otherwise."""

import numpy as np
import pytest

from edgeconv.tf import keras_files

pytestmark = [pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")]


def test_a_sequential_keras_file_of_tf_keras_is_known_by_its_version(tmp_path):
    from tf_keras import Sequential, layers

    model = Sequential([layers.Input((4,)), layers.Dense(3), layers.BatchNormalization()])
    model.save(tmp_path / "model.keras")
    loaded, steps = keras_files.load(str(tmp_path / "model.keras"), "keras")
    assert [step.attempt for step in steps] == ["tf_keras"]
    samples = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(loaded(samples), model(samples))


def test_a_sequential_keras_file_of_keras_3_still_loads_there(tmp_path):
    import keras

    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)]).save(
        tmp_path / "model.keras"
    )
    _, steps = keras_files.load(str(tmp_path / "model.keras"), "keras")
    assert [step.attempt for step in steps] == ["keras"]


def test_the_hard_sigmoid_of_an_old_file_stays_what_it_was(tmp_path):
    from tf_keras import Sequential, layers

    model = Sequential(
        [
            layers.Input((5, 3)),
            layers.LSTM(4, recurrent_activation="hard_sigmoid"),
            layers.Dense(2, activation="hard_sigmoid"),
        ]
    )
    model.save(tmp_path / "model.h5")
    loaded, steps = keras_files.load(str(tmp_path / "model.h5"), "hdf5")
    assert [step.attempt for step in steps] == ["tf_keras"]
    samples = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(loaded(samples), model(samples), atol=1e-6)
