"""What each layer costs when it alone is quantised."""

import hypothesis.extra.numpy as np_strategies
import numpy as np
import pytest
from debug_models import FIRST, KEY, SAMPLES, SECOND, two_dense
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tflite import Graph, packed

from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import quantize_model
from edgeconv.quantize.sensitivity import _rounded, sensitivities, sensitivities_of
from edgeconv.quantize.trials import COMPARISON_SAMPLES, comparison_feeds, lowest_snr_db, outputs_of
from edgeconv.types import MAX_SNR_DB, Recipe, Sensitivity

# The quantiser asks for this mode itself.


def feeds(samples: np.ndarray = SAMPLES, batch: int = 1) -> dict[str, Feed]:
    return {KEY: Feed({"x": samples}, batch)}


# All rows of a similar size.
SHARED_WEIGHTS = np.concatenate([100 * FIRST[:1, :6], FIRST[1:, :6]])


def one_weight_twice() -> bytes:
    """y = W W x, both layers reading one tensor."""
    graph = Graph()
    x = graph.tensor("x", (1, 6), "float32", dynamic=True)
    weights = graph.tensor("w", (6, 6), "float32", data=SHARED_WEIGHTS)
    hidden = graph.computed("once", (1, 6), "FULLY_CONNECTED", [x, weights, -1], dynamic=True)
    out = graph.computed("twice", (1, 6), "FULLY_CONNECTED", [hidden, weights, -1], dynamic=True)
    return packed(graph.model([x], [out], signature=(KEY, ["x"], ["y"])))


def four_bits(weights: np.ndarray) -> np.ndarray:
    """Each row rounded to multiples of a seventh of its largest magnitude."""
    scales = np.abs(weights).max(axis=1, keepdims=True) / 7
    return np.rint(weights / scales) * scales


def decibels(want: np.ndarray, have: np.ndarray) -> float:
    return float(10 * np.log10(np.var(want) / np.mean((have - want) ** 2)))


def by_layer(found: tuple[Sensitivity, ...]) -> dict[tuple[str, str], float]:
    return {(one.layer, one.precision): one.snr_db for one in found}


def test_four_bit_weights_cost_what_rounding_them_alone_costs():
    found = by_layer(sensitivities(CalibratedGraph(two_dense(), feeds(), threads=1), ["int4"]))
    x = SAMPLES[-COMPARISON_SAMPLES:].astype(np.float64)
    want = x @ FIRST.T @ SECOND.T
    assert found == {
        ("first", "int4"): pytest.approx(
            decibels(want, x @ four_bits(FIRST).T @ SECOND.T), abs=0.01
        ),
        ("second", "int4"): pytest.approx(
            decibels(want, x @ FIRST.T @ four_bits(SECOND).T), abs=0.01
        ),
    }


def test_of_weights_that_two_layers_share_one_use_is_rounded_at_a_time():
    found = by_layer(
        sensitivities(
            CalibratedGraph(one_weight_twice(), feeds(SAMPLES[:, :6]), threads=1), ["int4"]
        )
    )
    x = SAMPLES[-COMPARISON_SAMPLES:, :6].astype(np.float64)
    weights = SHARED_WEIGHTS
    want = x @ weights.T @ weights.T
    once = decibels(want, x @ four_bits(weights).T @ weights.T)
    twice = decibels(want, x @ weights.T @ four_bits(weights).T)
    assert abs(once - twice) > 0.03
    assert found["once", "int4"] == pytest.approx(once, abs=0.01)
    assert found["twice", "int4"] == pytest.approx(twice, abs=0.01)


def test_the_layer_with_outliers_is_the_worst_and_more_bits_cost_less():
    found = by_layer(
        sensitivities(CalibratedGraph(two_dense(), feeds(), threads=1), ["int4", "int8", "int16x8"])
    )
    assert min(found, key=found.__getitem__) == ("second", "int4")
    for layer in ("first", "second"):
        assert found[layer, "int4"] < found[layer, "int8"] < found[layer, "int16x8"] < MAX_SNR_DB


def test_the_errors_of_the_layers_alone_add_up_to_that_of_all_of_them():
    graph = CalibratedGraph(two_dense(), feeds(), threads=1)
    ranges = graph.fitted("minmax", bits=8).ranges
    made, _ = quantize_model(graph.model, Recipe(name="int8"), ranges)
    judging = comparison_feeds(graph.feeds)
    whole = lowest_snr_db(
        outputs_of(graph.model, judging, threads=1), outputs_of(made, judging, threads=1)
    )
    found = sensitivities(CalibratedGraph(two_dense(), feeds(), threads=1), ["int8"])
    assert len(found) == 2
    added = -10 * np.log10(sum(10 ** (-one.snr_db / 10) for one in found))
    # The tensor between two layers counts for both: their error is twice the whole at most.
    assert added - 0.5 < whole < added + 3.5


def test_weights_of_8_bits_alone_cost_less_than_activations_too():
    graph = CalibratedGraph(two_dense(), feeds(), threads=1)
    both = by_layer(sensitivities(graph, ["int8"]))
    pairs = [(layer, "int8") for layer in graph.layers]
    alone = by_layer(sensitivities_of(graph, pairs, weights_only=True))
    assert both.keys() == alone.keys()
    assert all(alone[layer] > both[layer] for layer in both)


def test_what_is_in_float_costs_nothing_and_what_cannot_be_quantised_has_no_entry():
    found = sensitivities(
        CalibratedGraph(two_dense(cosine=True), feeds(), threads=1), ["float32", "int8"]
    )
    assert {one.layer for one in found if one.precision == "int8"} == {"first", "second"}
    floats = {one.layer: one.snr_db for one in found if one.precision == "float32"}
    assert floats == dict.fromkeys(("first", "cos", "second"), MAX_SNR_DB)


def test_a_layer_says_its_operator_and_how_many_weights_it_has():
    found = sensitivities(CalibratedGraph(two_dense(), feeds(), threads=1), ["float16"])
    assert [(one.operator, one.weights) for one in found] == [
        ("FULLY_CONNECTED", 48),
        ("FULLY_CONNECTED", 24),
    ]
    assert all(50 < one.snr_db < MAX_SNR_DB for one in found)


@pytest.mark.parametrize(("samples", "batch", "judging"), [(48, 1, 32), (20, 1, 20), (48, 48, 48)])
def test_the_last_samples_judge_in_whole_batches(samples, batch, judging):
    feed = comparison_feeds(feeds(SAMPLES[:samples], batch))[KEY]
    assert feed.samples == judging
    rows = np.concatenate([batch["x"] for batch in feed])
    np.testing.assert_array_equal(rows, SAMPLES[samples - judging : samples])


_WEIGHTS = np_strategies.arrays(
    np.float32, (3, 2, 2, 4), elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)


@settings(max_examples=50, deadline=None)
@given(_WEIGHTS, st.sampled_from(["CONV_2D", "DEPTHWISE_CONV_2D"]))
def test_rounding_is_within_half_a_step_of_its_own_channel(weights, operator):
    done = _rounded(weights, operator, "int4")
    axes = (0, 1, 2) if operator == "DEPTHWISE_CONV_2D" else (1, 2, 3)
    # A channel that is next to nothing beside the largest has no scale of its own.
    floor = np.abs(weights).max() / 7 * 1e-6
    steps = np.maximum(np.abs(weights).max(axis=axes, keepdims=True) / 7, floor)
    assert (np.abs(done - weights) <= steps * 0.5001 + 1e-30).all()
