"""The spectrograms of all recordings of the Free Spoken Digit Dataset."""

import wave

import numpy as np
import pytest
from edgeconv.models import Data, spoken_digits
from places import SHARED

DIGITS = SHARED / "audio_fsdd"

pytestmark = pytest.mark.skipif(
    not DIGITS.is_dir(), reason="the recordings are not in ../shared/data"
)


@pytest.fixture(scope="module")
def data() -> Data:
    return spoken_digits.data(str(DIGITS / "fsdd.npz"))


@pytest.mark.slow
def test_the_spoken_digits_are_2700_for_training_and_300_for_testing(data):
    assert data.x_train["log_mel"].shape == (2700, 64, 32, 1)
    assert np.bincount(data.y_train).tolist() == [270] * 10
    assert np.bincount(data.y_test).tolist() == [30] * 10
    assert data.x_train["log_mel"].min() == -2.0


def test_a_recording_of_the_upstream_is_the_one_in_the_archive(data):
    (path,) = DIGITS.glob("sample_wavs/7_jackson_0.wav")
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    sevens = data.x_test["log_mel"][data.y_test == 7][..., 0]
    expected = spoken_digits.log_mel(samples, spoken_digits.mel_weights())
    assert (sevens == expected).all(axis=(1, 2)).sum() == 1
