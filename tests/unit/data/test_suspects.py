"""What calibration samples say of themselves: their ranges, and how many differ."""

from typing import Any

import numpy as np
import pytest

from edgeconv.data import Samples
from edgeconv.data.samples import evenly, input_ranges, set_suspicions
from edgeconv.data.suspects import is_larger, other_preprocessings, state_suspicions, usual_scales

RANDOM = np.random.default_rng(4)
NOISE = RANDOM.uniform(0, 1, (40, 16, 16, 3)).astype(np.float32)
# Each pixel is much like those beside it.
IMAGES = (np.cumsum(np.cumsum(NOISE, axis=1), axis=2) / 256).astype(np.float32)


def samples(**arrays: Any) -> Samples:
    return Samples(arrays, None, "samples.npz")


def reasons(**arrays: Any) -> dict[str, bool]:
    held = samples(**arrays)
    return {each.reason: each.is_certain for each in set_suspicions(held)}


def test_the_range_and_scale_of_each_input_of_numbers_are_those_of_all_its_values():
    far = (RANDOM.normal(5e4, 2, (3000, 500))).astype(np.float32)
    tokens = RANDOM.integers(0, 99, (3000, 4), np.int32)
    one, two = input_ranges(samples(far=far, tokens=tokens, user=np.full(3000, b"me")))
    assert (one.low, one.high) == (far.min(), far.max())
    assert one.mean == pytest.approx(far.mean(dtype=np.float64), rel=1e-9)
    assert one.deviation == pytest.approx(far.std(dtype=np.float64), rel=1e-6)
    assert (one.is_whole, two.is_whole, two.name) == (False, True, "tokens")
    assert "'tokens': 0 to 98, mean 4" in two.text
    assert two.text.endswith("whole numbers")


def test_samples_that_differ_are_not_suspicious():
    assert reasons(image=IMAGES) == {}
    # A mask of whole numbers often has only ones.
    assert reasons(image=IMAGES, mask=np.ones((40, 3), np.int32)) == {}


@pytest.mark.parametrize(
    ("image", "reason", "is_certain"),
    [
        (np.zeros_like(IMAGES), "all 40 samples are equal", True),
        (np.repeat(IMAGES[:1], 40, axis=0), "all 40 samples are equal", True),
        (np.zeros_like(IMAGES[:4]), "all 4 samples are equal", False),
        (IMAGES[np.arange(40) % 3], "only 3 of 40 samples differ", False),
        (IMAGES[:5], "there are only 5 samples", False),
    ],
)
def test_equal_constant_and_few_samples_are_named(image, reason, is_certain):
    assert reasons(image=image) == {reason: is_certain}


def test_most_of_a_set_being_equal_is_named():
    """As where nine in ten were missing, which somebody replaced by zeros."""
    missing = np.where((np.arange(40) < 21).reshape(-1, 1, 1, 1), 0, IMAGES)
    assert reasons(image=missing) == {"21 of 40 samples are equal": False}
    assert reasons(image=np.where((np.arange(40) < 20).reshape(-1, 1, 1, 1), 0, IMAGES)) == {}


def test_images_of_random_pixels_are_named_and_noisy_ones_are_not():
    shuffled = IMAGES.reshape(40, -1)[:, RANDOM.permutation(16 * 16 * 3)].reshape(IMAGES.shape)
    for random in (NOISE, shuffled, (NOISE * 255).astype(np.uint8)):
        (reason,) = reasons(image=random)
        assert reason == (
            "neighboring pixels of 'image' have nothing in common, as in random noise"
        )
    assert reasons(image=IMAGES + 0.5 * IMAGES.std() * NOISE) == {}
    # Random vectors and small tables are what some models take.
    assert reasons(z=NOISE.reshape(40, -1)) == reasons(board=NOISE[:, :8]) == {}


def test_labels_that_are_all_the_same_are_named():
    one = Samples({"image": IMAGES}, np.full(40, 3), "samples.npz")
    assert [each.reason for each in set_suspicions(one)] == ["all samples have the label 3"]
    two = Samples({"image": IMAGES}, np.arange(40) // 39, "samples.npz")
    assert set_suspicions(two) == ()


@pytest.mark.parametrize(
    ("image", "steps"), [(IMAGES, "scale=-1&mean=-1"), (IMAGES * 255, "scale=-1&mean=-255")]
)
def test_what_keeps_the_range_of_images_is_negatives_and_colors(image, steps):
    tried = dict(other_preprocessings({"image": image, "speed": NOISE[:, 0, 0]}, only_alike=True))
    assert set(tried) == {steps, "channels=bgr"}
    high = 255 if image.max() > 1 else 1
    np.testing.assert_allclose(tried[steps]["image"], high - image, rtol=1e-5, atol=1e-4)
    assert set(dict(other_preprocessings({"image": 2 * IMAGES - 1}))) >= {"scale=-1"}


@pytest.mark.parametrize(
    ("array", "steps"),
    [
        (np.rint(IMAGES * 255), {"scale=1/255", "scale=1/127.5&mean=1"}),
        (2 * IMAGES - 1, {"scale=0.5&mean=-0.5"}),
        ((IMAGES - 0.449) / 0.226, {"scale=0.226&mean=-0.449"}),
        (NOISE[:, 0, 0] * 32768, {"scale=1/32768"}),
        (IMAGES, set()),
        (NOISE[:, 0, 0] * 9.8, set()),
    ],
)
def test_usual_scales_are_those_that_the_range_suggests(array, steps):
    assert {name for name, _ in usual_scales({"x": array}, {})} == steps
    both = dict(usual_scales({"x": array, "y": np.arange(40, dtype=np.int32)}, {}))
    assert {name.replace("x.", "") for name in both} == steps
    assert all(0 <= abs(each["x"]).max() <= 1.01 for each in both.values())


@pytest.mark.parametrize(
    ("image", "steps"),
    [
        (IMAGES, {"scale=255"}),
        (2 * IMAGES - 1, {"scale=0.5&mean=-0.5", "scale=127.5&mean=-127.5"}),
        (np.rint(IMAGES * 255), {"scale=1/255", "scale=1/127.5&mean=1"}),
        (IMAGES[:, :4], set()),
    ],
)
def test_larger_scales_are_for_images_of_which_a_model_tells_nothing(image, steps):
    nothing = {"p": 0.25 + 1e-3 * np.eye(4)[np.arange(40) % 4]}
    tried = dict(usual_scales({"image": image}, nothing))
    assert set(tried) == steps
    for name in filter(is_larger, steps):
        np.testing.assert_allclose(tried[name]["image"], 255 * IMAGES, rtol=1e-4, atol=1e-3)
    telling = {"p": 0.1 + 0.6 * np.eye(4)[np.arange(40) % 4]}
    assert not any(is_larger(name) for name in dict(usual_scales({"image": image}, telling)))
    for place in (NOISE[:, 0], np.linspace(0.45, 0.55, 80).reshape(40, 2)):
        assert not any(map(is_larger, dict(usual_scales({"image": image}, {"place": place}))))


def test_an_input_that_is_the_same_in_all_samples_is_named():
    assert reasons(image=IMAGES, gain=np.full((40, 2), 0.5, np.float32)) == {
        "'gain' is the same in every sample": False
    }


def test_samples_are_equal_only_if_all_their_inputs_are():
    image = np.repeat(IMAGES[:1], 40, axis=0)
    assert reasons(image=image, tokens=np.arange(40, dtype=np.int32)[:, None]) == {
        "'image' is the same in every sample": False
    }


def test_steps_undo_what_they_say():
    undone = dict(other_preprocessings({"image": IMAGES * 255, "tokens": np.arange(40)}))
    np.testing.assert_allclose(undone["scale=1/255"]["image"], IMAGES, rtol=1e-5)
    np.testing.assert_array_equal(undone["scale=1/255"]["tokens"], np.arange(40))
    np.testing.assert_array_equal(undone["channels=bgr"]["image"], IMAGES[..., ::-1] * 255)
    assert all(each["image"].dtype == np.float32 for each in undone.values())


def test_inputs_of_one_shape_are_exchanged_and_others_are_not():
    left, right = np.float32([[1, 2]]), np.float32([[3, 4]])
    tried = dict(other_preprocessings({"left": left, "right": right, "scale": np.float32([[5]])}))
    exchanged = tried["'left' and 'right' exchanged"]
    np.testing.assert_array_equal(exchanged["left"], right)
    assert sum("exchanged" in steps for steps in tried) == 1


@pytest.mark.parametrize(("count", "most"), [(64, 64), (500, 64), (9, 1), (1, 1)])
def test_indices_are_spread_over_all_samples(count, most):
    indices = evenly(count, most)
    assert len(set(indices.tolist())) == most
    assert (indices[0], indices[-1] < count) == (0, True)
    assert most == 1 or indices[-1] == count - 1


RANDOM_ROWS = np.random.default_rng(8).normal(size=(96, 40)).astype(np.float32)
ZERO, MOVED = np.zeros((96, 4), np.float32), np.ones((96, 4), np.float32)
# Frames of a tone that swells and fades, and a slowly moving reading of a few sensors.
TONE = np.sin(np.arange(96 * 40) / 5).reshape(96, 40) * (1 + np.sin(np.arange(96) / 9))[:, None]
WALK = RANDOM_ROWS[:, :6].cumsum(axis=0)


@pytest.mark.parametrize(
    ("x", "h", "said"),
    [
        (TONE.astype(np.float32), MOVED, []),
        (WALK, MOVED, []),
        (RANDOM_ROWS, MOVED, ["'x'"]),
        (RANDOM_ROWS[:, :6], MOVED, ["'x'"]),
        (WALK, ZERO, ["'h'"]),
        (RANDOM_ROWS[:20], MOVED[:20], []),
    ],
    ids=["tone", "walk", "noise", "noise of sensors", "zero state", "too few"],
)
def test_consecutive_samples_are_no_noise_and_their_states_move(x, h, said):
    found = list(state_suspicions({"x": x, "h": h}, ["h"]))
    assert [each.is_certain for each in found] == [False] * len(said)
    assert all(name in each.reason for name, each in zip(said, found, strict=True))
