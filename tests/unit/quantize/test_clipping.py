import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tflite import Graph, packed

from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.quantize.ranges import clipping
from edgeconv.quantize.ranges.clipping import (
    MIN_SAMPLES,
    clip_range,
    clip_ranges,
    divergence,
    percentile_ends,
    squared_error,
)
from edgeconv.quantize.ranges.histograms import BINS, Histogram, fixed_range_tensors

METHODS = ("percentile", "mse", "kl")
BITS = 8


def histogram_of(values: np.ndarray, ends: tuple[float, float] | None = None) -> Histogram:
    values = values.astype(np.float32)
    low, high = ends or (float(values.min()), float(values.max()))
    found = Histogram(np.zeros(BINS, np.int64), low, high)
    found.add(values)
    return found


@st.composite
def spread_values(draw: st.DrawFn) -> np.ndarray:
    """Values as activations have them: a bell, perhaps cut at 0, moved, and with outliers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    values = rng.standard_t(draw(st.sampled_from([2, 4, 30])), size=draw(st.integers(64, 4000)))
    values = values * draw(st.floats(1e-3, 1e3)) + draw(st.floats(-3, 3))
    if draw(st.booleans()):
        values = np.maximum(values, 0)
    values[0] = values.max() * draw(st.floats(1, 40)) + 1e-3
    return values


def limits_of(low: float, high: float) -> dict[str, Any]:
    return {"min": np.array([low]), "max": np.array([high])}


def outlying(*, one_sided: bool = False, sign: int = 1) -> Histogram:
    """A bell of width 1, and a millionth of the values at 40."""
    values = np.random.default_rng(0).normal(size=200_000)
    values = np.abs(values) if one_sided else values
    found = histogram_of(sign * np.append(values, 40.0))
    found.counts[found.counts > 0] *= 5
    found.counts[np.argmin(np.abs(found.centers - sign * 40.0))] = 1
    return found


def clipped_histogram(histogram: Histogram, low: float, high: float) -> Histogram:
    values = np.repeat(histogram.centers, histogram.counts)
    return histogram_of(np.clip(values, low, high))


def rounded(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The values as int8 between these ends stores them."""
    scale = (high - low) / 255
    zero_point = round(-low / scale)
    return (np.clip(np.rint(values / scale) + zero_point, 0, 255) - zero_point) * scale


# What holds for every method


@settings(max_examples=40, deadline=None)
@given(values=spread_values(), method=st.sampled_from(METHODS))
def test_a_narrowed_range_lies_within_the_old_one_and_holds_zero_if_that_did(values, method):
    histogram = histogram_of(values)
    low, high = clip_range(method, histogram, bits=BITS)
    assert histogram.low <= low <= high <= histogram.high
    if histogram.low <= 0 <= histogram.high:
        assert low <= 0 <= high


@settings(max_examples=25, deadline=None)
@given(values=spread_values(), method=st.sampled_from(METHODS), power=st.integers(-8, 8))
def test_the_ends_scale_with_the_values(values, method, power):
    small, large = histogram_of(values), histogram_of(values * 2.0**power)
    expected = np.array(clip_range(method, small, bits=BITS)) * 2.0**power
    assert clip_range(method, large, bits=BITS) == pytest.approx(tuple(expected), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(values=spread_values(), method=st.sampled_from(METHODS))
def test_of_mirrored_values_the_ends_are_mirrored_or_as_good(values, method):
    one, other = histogram_of(values), histogram_of(-values)
    low, high = clip_range(method, one, bits=BITS)
    mirrored = clip_range(method, other, bits=BITS)
    if method == "percentile":
        assert mirrored == pytest.approx((-high, -low), abs=1.01 * one.step)
    if method == "mse":
        # The two ends are found in the same order, whichever is which.
        found = squared_error(other, *mirrored, BITS)
        assert found == pytest.approx(squared_error(one, low, high, BITS), rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_values_clipped_to_the_chosen_range_are_hardly_clipped_again(method):
    low, high = clip_range(method, outlying(), bits=BITS)
    again = clip_range(method, clipped_histogram(outlying(), low, high), bits=BITS)
    assert high < 30
    assert again[1] - again[0] > 0.8 * (high - low)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_value_far_out_is_given_up(method):
    low, high = clip_range(method, outlying(), bits=BITS)
    assert 3 < high < 30
    assert -6 < low < -3


@pytest.mark.parametrize("method", METHODS)
def test_evenly_spread_values_keep_their_range(method):
    values = np.random.default_rng(0).uniform(-1, 2, 100_000)
    low, high = clip_range(method, histogram_of(values), bits=BITS)
    assert high - low > 0.97 * 3


@pytest.mark.parametrize("method", METHODS)
def test_of_values_of_one_sign_only_the_far_end_moves(method):
    positive, negative = outlying(one_sided=True), outlying(one_sided=True, sign=-1)
    low, high = clip_range(method, positive, bits=BITS)
    assert low == positive.low
    assert 3 < high < 30
    low, high = clip_range(method, negative, bits=BITS)
    assert high == negative.high
    assert -30 < low < -3


def test_every_method_says_how_many_samples_it_wants():
    assert set(MIN_SAMPLES) == set(METHODS)
    assert min(MIN_SAMPLES.values()) >= 16


# Of the ranges of a model


@pytest.mark.parametrize("method", METHODS)
def test_only_ranges_with_a_histogram_are_narrowed_and_what_was_given_stays(method):
    histogram = outlying()
    given_ranges = {"x": limits_of(histogram.low, histogram.high), "y": limits_of(-5.0, 40.0)}
    found = clip_ranges(method, {"x": histogram, "z": histogram}, given_ranges, bits=BITS)
    low, high = clip_range(method, histogram, bits=BITS)
    assert found["x"] == limits_of(low, high)
    assert found["y"] == given_ranges["y"]
    assert set(found) == {"x", "y"}
    assert given_ranges["x"]["max"] == [40.0]


@pytest.mark.parametrize("method", METHODS)
def test_at_16_bits_all_ranges_stay(method):
    given_ranges = {"x": limits_of(-5.0, 100.0)}
    assert clip_ranges(method, {"x": outlying()}, given_ranges, bits=16) == given_ranges


@pytest.mark.parametrize("method", METHODS)
def test_a_histogram_that_saw_nothing_narrows_nothing(method):
    empty = Histogram(np.zeros(BINS, np.int64), -1.0, 1.0)
    assert clip_ranges(method, {"x": empty}, {"x": limits_of(-1, 1)}, bits=BITS) == {
        "x": limits_of(-1, 1)
    }


def test_where_hardly_any_value_is_not_zero_the_range_stays(monkeypatch):
    """Without those few there is no range at all."""
    values = np.zeros(100_000)
    values[3] = 1.0
    given_ranges = {"x": limits_of(0.0, 1.0)}
    monkeypatch.setattr(clipping, "PERCENTILE", 0.99)
    found = clip_ranges("percentile", {"x": histogram_of(values)}, given_ranges, bits=8)
    assert found == given_ranges


# Percentile


@settings(max_examples=50, deadline=None)
@given(values=spread_values())
def test_all_of_the_values_are_between_minimum_and_maximum(values):
    histogram = histogram_of(values)
    assert percentile_ends(histogram, 1.0) == (histogram.low, histogram.high)


@settings(max_examples=50, deadline=None)
@given(values=spread_values(), share=st.floats(0.5, 0.9999))
def test_at_least_the_share_asked_for_is_kept(values, share):
    histogram = histogram_of(values)
    low, high = percentile_ends(histogram, share)
    half = 0.51 * histogram.step
    between = (values >= low - half) & (values <= high + half)
    assert between.mean() >= share


@settings(max_examples=50, deadline=None)
@given(values=spread_values(), shares=st.tuples(st.floats(0.5, 1), st.floats(0.5, 1)))
def test_who_keeps_more_keeps_a_wider_range(values, shares):
    histogram = histogram_of(values)
    (low, high), (wide_low, wide_high) = (percentile_ends(histogram, s) for s in sorted(shares))
    assert wide_low <= low
    assert high <= wide_high


def test_the_ends_are_those_of_the_quantiles():
    values = np.random.default_rng(0).normal(size=200_000)
    low, high = percentile_ends(histogram_of(values), 0.98)
    assert (low, high) == pytest.approx(tuple(np.quantile(values, [0.01, 0.99])), abs=0.01)


def test_of_values_of_one_sign_all_that_is_cut_off_is_at_the_top():
    values = np.random.default_rng(0).exponential(size=200_000)
    assert percentile_ends(histogram_of(values), 0.99)[1] == pytest.approx(
        np.quantile(values, 0.99), abs=0.02
    )


# Squared error


@settings(max_examples=40, deadline=None)
@given(values=spread_values())
def test_the_chosen_range_has_no_more_error_than_the_true_one(values):
    histogram = histogram_of(values)
    low, high = clip_range("mse", histogram, bits=BITS)
    before = squared_error(histogram, histogram.low, histogram.high, BITS)
    assert squared_error(histogram, low, high, BITS) <= before


@pytest.mark.parametrize("fraction", [1.0, 0.6, 0.3, 0.12, 0.05])
@pytest.mark.parametrize("sides", ["both", "one", "other"])
def test_the_expected_error_is_that_of_quantising_the_values(fraction, sides):
    """Also where a step is finer than a bin."""
    values = np.random.default_rng(0).normal(size=400_000)
    if sides != "both":
        values = np.maximum(values, 0) * (1 if sides == "one" else -1)
    histogram = histogram_of(values)
    low, high = min(0, histogram.low * fraction), max(0, histogram.high * fraction)
    real = float(np.mean((values - rounded(values, low, high)) ** 2))
    assert squared_error(histogram, low, high, BITS) == pytest.approx(real, rel=0.03)


@settings(max_examples=20, deadline=None)
@given(values=spread_values())
def test_no_range_that_was_not_tried_is_much_better(values):
    histogram = histogram_of(values)
    found = squared_error(histogram, *clip_range("mse", histogram, bits=BITS), BITS)
    for fraction in np.linspace(0.02, 1, 25):
        ends = histogram.low * fraction, histogram.high * fraction
        assert found <= 1.15 * squared_error(histogram, *ends, BITS) + 1e-12


def test_zeros_have_no_error_and_the_end_may_be_the_least_value_that_was_seen():
    assert squared_error(histogram_of(np.r_[np.zeros(10**5), 1.0]), 0.0, 1.0, BITS) < 1e-10
    histogram = histogram_of(np.array([0.5, 20, 40]), (0.0, 40.0))
    histogram.counts[histogram.counts.argmax()] = 10**9
    assert clip_range("mse", histogram, bits=BITS)[1] == pytest.approx(0.5, abs=histogram.step)


def test_fewer_bits_clip_more():
    histogram = histogram_of(np.random.default_rng(0).standard_t(4, size=100_000))
    widths = [np.ptp(clip_range("mse", histogram, bits=bits)) for bits in (4, 6, 8)]
    assert widths == sorted(widths)
    assert widths[0] < 0.8 * widths[2]


# Divergence


@settings(max_examples=40, deadline=None)
@given(values=spread_values(), fraction=st.floats(0.1, 1))
def test_the_divergence_is_never_negative(values, fraction):
    histogram = histogram_of(values)
    end = histogram.high * fraction
    assert divergence(histogram, histogram.low, end, BITS) >= -1e-9


def test_a_level_for_every_bin_loses_nothing():
    values = np.random.default_rng(0).uniform(0, 1, 50_000)
    assert divergence(histogram_of(values), 0.0, 1.0, 11) == pytest.approx(0, abs=1e-12)


def test_an_empty_bin_stays_empty_in_both():
    """Every eighth bin has values: one to a level of 8 bits, which so loses nothing."""
    counts = np.zeros(BINS, np.int64)
    counts[4:BINS:8] = np.arange(1, 257) * 100
    assert divergence(Histogram(counts, 0.0, 1.0), 0.0, 1.0, BITS) == pytest.approx(0, abs=1e-12)
    counts[5:BINS:8] = 7
    assert divergence(Histogram(counts, 0.0, 1.0), 0.0, 1.0, BITS) > 0.1


def test_a_range_that_ends_where_no_value_is_cannot_be_judged():
    counts = np.zeros(BINS, np.int64)
    counts[:1500] = 1000
    counts[2046] = 1
    histogram = Histogram(counts, 0.0, 1.0)
    assert math.isinf(divergence(histogram, 0.0, 1600 * histogram.step, BITS))
    assert math.isfinite(divergence(histogram, 0.0, 1499 * histogram.step, BITS))


def test_the_entropy_method_gives_up_only_what_is_rare():
    """Values that recur exactly make it want to; they are no reason to lose others."""
    rng = np.random.default_rng(0)
    values = np.abs(rng.normal(size=100_000)) * 10
    values[:60_000] = np.repeat([0.1, 0.5, 0.9, 1.1], 15_000)
    _, high = clip_range("kl", histogram_of(values), bits=BITS)
    assert (values > high).mean() <= 0.001


# What is kept from all methods


def graph_of(*operators: tuple[str, str, str]) -> Graph:
    """Operators of one input and one output, each as (name, input, output)."""
    graph = Graph()
    found: dict[str, int] = {}
    for operator, *ends in operators:
        for name in ends:
            if name not in found:
                found[name] = graph.tensor(name, (1, 4), "float32")
        graph.operator(operator, [found[ends[0]]], [found[ends[1]]])
    return graph


def kept_of(*operators: tuple[str, str, str], also: tuple[str, ...] = ()) -> set[str]:
    graph = graph_of(*operators)
    names = [tensor.name for tensor in graph.tensors]
    outputs = [names.index(operators[-1][2]), *map(names.index, also)]
    return set(fixed_range_tensors(parse(packed(graph.model([0], outputs)), where="the model")))


def test_inputs_and_outputs_are_kept_and_what_is_between_is_not():
    assert kept_of(("ABS", "x", "h"), ("RELU", "h", "y")) == {"x", "y"}


def test_what_an_output_is_only_a_reshape_of_is_kept():
    found = kept_of(
        ("ABS", "x", "h"), ("RELU", "h", "g"), ("RESHAPE", "g", "f"), ("SQUEEZE", "f", "y")
    )
    assert found == {"x", "g", "f", "y"}


@pytest.mark.parametrize("operator", ["SOFTMAX", "LOGISTIC"])
def test_the_logits_of_an_output_are_kept(operator):
    found = kept_of(("ABS", "x", "h"), ("RELU", "h", "logits"), (operator, "logits", "y"))
    assert found == {"x", "logits", "y"}


def test_the_input_of_a_softmax_within_is_kept_and_that_of_a_sigmoid_within_is_not():
    ends = (("ABS", "x", "h"),), (("RELU", "p", "g"), ("ABS", "g", "y"))
    assert kept_of(*ends[0], ("SOFTMAX", "h", "p"), *ends[1]) == {"x", "h", "p", "y"}
    assert kept_of(*ends[0], ("LOGISTIC", "h", "p"), *ends[1]) == {"x", "p", "y"}


def test_an_output_that_others_read_is_kept():
    found = kept_of(("ABS", "x", "h"), ("RELU", "h", "g"), ("ABS", "g", "y"), also=("h",))
    assert found == {"x", "h", "y"}
