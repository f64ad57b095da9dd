"""Samples that were scaled before a model that scales its input itself."""

import msgspec
import numpy as np
import pytest

from edgeconv.data.suspects import hits_of
from edgeconv.tf.normalization import ScaledTwice, scaled_before, undone

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 6, 6, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("divisor", "scaled", "steps"),
    [
        (255.0, PIXELS / 255, "scale=255"),
        (127.5, PIXELS / 255, "scale=255"),
        (255.0, PIXELS / 127.5 - 1, "scale=127.5&mean=-127.5"),
        (127.5, PIXELS / 127.5 - 1, "scale=127.5&mean=-127.5"),
    ],
)
def test_scaled_pixels_are_seen_and_the_steps_undo_it(divisor, scaled, steps):
    found = scaled_before("image", scaled, divisor)
    assert found.steps == steps
    np.testing.assert_allclose(undone(scaled, found), PIXELS, atol=1e-3)


def test_audio_of_16_bits_is_seen_too():
    wave = np.sin(np.arange(4000, dtype=np.float32).reshape(4, 1000)) * 0.8
    found = scaled_before("wave", wave, 32768.0)
    assert found.steps == "scale=32768"


@pytest.mark.parametrize(
    "right",
    [
        PIXELS,
        # A set of dark pictures, and of masks; of nothing; of numbers without a fraction.
        np.minimum(PIXELS, 1),
        PIXELS / 60,
        np.zeros_like(PIXELS),
        np.full_like(PIXELS, 0.3),
        PIXELS.astype(np.uint8),
    ],
)
def test_samples_that_may_be_right_are_left_alone(right):
    assert scaled_before("image", right, 255.0) is None


def test_labels_say_whether_the_samples_are_right():
    labels = np.arange(40) % 4
    good, bad = np.eye(4, dtype=np.float32)[labels], np.eye(4, dtype=np.float32)[labels * 0]
    found = scaled_before("image", PIXELS / 255, 255.0)
    assert not found.is_confirmed
    assert not found.is_refuted

    def compared(outputs: np.ndarray, others: np.ndarray) -> ScaledTwice:
        return msgspec.structs.replace(found, hits=hits_of(labels, {"y": outputs}, {"y": others}))

    wrong = compared(bad, good)
    assert (wrong.hits.own, wrong.hits.other, wrong.hits.gained) == (10, 40, 30)
    assert wrong.is_confirmed
    right = compared(good, bad)
    assert right.is_refuted
    assert not right.is_confirmed
    assert hits_of(None, {"y": good}, {"y": bad}) is None
