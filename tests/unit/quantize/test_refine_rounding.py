"""Rounding for the least error of a layer's output."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeconv.quantize.refine import rounding
from edgeconv.quantize.refine.rounding import (
    Rounded,
    absmax_scales,
    damp_moment,
    limits,
    quadratic_error,
    round_nearest,
    round_weights,
)

SIZES = {"groups": st.integers(1, 3), "channels": st.integers(1, 5), "d": st.integers(1, 20)}


def problem(seed, groups, channels, d, *, rows=40):
    """Weights, and the moment of inputs that hang together."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(groups, d, d))
    inputs = rng.normal(size=(groups, rows, d)) @ mixing
    moment = np.swapaxes(inputs, 1, 2) @ inputs / rows
    return rng.normal(size=(groups, channels, d)), damp_moment(moment, rows)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bits=st.sampled_from([4, 8]),
    moved=st.sampled_from([0.0, 0.1]),
    **SIZES,
)
def test_no_channel_is_worse_than_rounded_to_nearest(seed, bits, moved, groups, channels, d):
    """Also toward a target that is not the weights; the integers stay within their bits."""
    weights, moment = problem(seed, groups, channels, d)
    target = weights + moved * np.random.default_rng(seed + 1).normal(size=weights.shape)
    start = round_nearest(weights, absmax_scales(weights, bits), bits)
    found = round_weights(target, moment, start, bits)
    before = quadratic_error(start.values, target, moment)
    assert (quadratic_error(found.values, target, moment) <= before).all()
    low, high = limits(bits)
    assert low <= found.integers.min() <= found.integers.max() <= high


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), bits=st.sampled_from([4, 8]), **SIZES)
def test_weights_that_can_be_stored_stay_as_they_are(seed, bits, groups, channels, d):
    weights, moment = problem(seed, groups, channels, d)
    once = round_nearest(weights, absmax_scales(weights, bits), bits)
    found = round_weights(once.values, moment, once, bits)
    np.testing.assert_array_equal(found.integers, once.integers)
    np.testing.assert_array_equal(found.scales, once.scales)


def test_four_bits_on_inputs_that_hang_together_lose_less_than_half():
    weights, _ = problem(3, 1, 32, 64)
    inputs = np.random.default_rng(3).normal(size=(200, 16, 1)) * np.ones((16, 4))
    inputs = inputs.reshape(200, 64)
    moment = damp_moment((inputs.T @ inputs / 200)[None], 20_000)
    start = round_nearest(weights, absmax_scales(weights, 4), 4)
    found = round_weights(weights, moment, start, 4)
    before = quadratic_error(start.values, weights, moment).sum()
    assert quadratic_error(found.values, weights, moment).sum() < 0.5 * before


def test_the_best_of_all_roundings_is_found_in_a_small_case():
    weights = np.array([[[0.4, 0.4]]])
    moment = np.array([[[1.0, 0.99], [0.99, 1.0]]])
    start = Rounded(np.array([[[0, 0]]], np.int8), np.ones((1, 1, 1), np.float32))
    found = round_weights(weights, moment, start, 8, keep_scales=True)
    # Either of the two goes up and makes up for the other.
    assert sorted(found.integers.ravel().tolist()) == [0, 1]
    np.testing.assert_array_equal(found.scales, start.scales)


def test_scales_of_blocks_are_kept_and_used():
    weights, moment = problem(4, 1, 6, 64)
    weights[:, :, :32] *= 10
    scales = absmax_scales(weights, 4, block=32)
    start = round_nearest(weights, scales, 4)
    found = round_weights(weights, moment, start, 4, keep_scales=True)
    np.testing.assert_array_equal(found.scales, scales)
    before = quadratic_error(start.values, weights, moment)
    assert (quadratic_error(found.values, weights, moment) < before).all()
    whole = round_nearest(weights, absmax_scales(weights, 4), 4)
    assert before.sum() < quadratic_error(whole.values, weights, moment).sum()


def test_only_the_likeliest_clipping_factors_are_swept(monkeypatch):
    """Sweeps take most of the time; with all eleven factors the error is hardly smaller."""
    swept, calls = rounding._Sweep.swept, []

    def counted(self, target, scales):
        calls.append(scales)
        return swept(self, target, scales)

    weights, moment = problem(3, 2, 8, 40, rows=200)
    start = round_nearest(weights, absmax_scales(weights, 4), 4)

    def error():
        values = round_weights(weights, moment, start, 4).values
        return float(quadratic_error(values, weights, moment).sum())

    monkeypatch.setattr(rounding._Sweep, "swept", counted)
    few = error()
    assert len(calls) <= 3
    monkeypatch.setattr(rounding, "_SWEPT", 11)
    assert few <= 1.05 * error()
    assert len(calls) >= 11


def test_blocks_may_be_clipped_too():
    weights, moment = problem(4, 1, 6, 64)
    start = round_nearest(weights, absmax_scales(weights, 4, block=32), 4)
    found = round_weights(weights, moment, start, 4)
    before = quadratic_error(start.values, weights, moment)
    assert (quadratic_error(found.values, weights, moment) < before).all()
    assert (found.scales[:, :, :31] == found.scales[:, :, 1:32]).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_no_scale_is_below_the_least(bits):
    weights, moment = problem(5, 2, 3, 9)
    least = np.full((2, 3, 1), 0.5)
    scales = absmax_scales(weights, bits, least=least)
    found = round_weights(weights, moment, round_nearest(weights, scales, bits), bits, least=least)
    assert (scales >= 0.5).all()
    assert (found.scales >= 0.5).all()


def test_a_channel_of_zeros_and_inputs_that_never_fire_do_no_harm():
    weights, _ = problem(6, 2, 3, 9)
    weights[0, 1] = 0
    moment = damp_moment(np.zeros((2, 9, 9)), 40)
    scales = absmax_scales(weights, 4)
    found = round_weights(weights, moment, round_nearest(weights, scales, 4), 4)
    assert np.isfinite(found.scales).all()
    assert (found.scales > 0).all()
    assert not found.integers[0, 1].any()


def test_weights_that_are_all_zero_get_a_scale():
    assert absmax_scales(np.zeros((1, 2, 3)), 8).ravel().tolist() == pytest.approx([1.0, 1.0])


def test_fewer_samples_are_damped_more():
    moment = np.eye(4)[None]
    few, many = damp_moment(moment, 4), damp_moment(moment, 4000)
    assert few[0, 0, 0] == pytest.approx(2.01)
    assert many[0, 0, 0] == pytest.approx(1.011)
    assert few[0, 0, 1] == 0
