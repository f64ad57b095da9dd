from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tflite import Graph, float_model, packed
from wording import fails

from edgeconv.quantize.calibrate import CalibratedGraph, Feed, activation_ranges, widen_ranges
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.types import Recipe
from edgeconv.types.errors import InputRefused, ToolFailed

KEY = "serving_default"
INT32_MAX = 2**31 - 1
BOUND = 6.0
LEVELS = {8: 255, 16: 32767}


def limits_of(low: float, high: float) -> dict[str, Any]:
    return {"min": np.array([[low]]), "max": np.array([[high]])}


ranges = st.tuples(st.floats(-10, 0), st.floats(0, 10)).map(lambda ends: limits_of(*ends))
tiny = st.floats(1e-12, 1e-9).map(lambda high: limits_of(0.0, high))


@given(limits=ranges | tiny, bits=st.sampled_from([8, 16]))
def test_a_widened_range_holds_the_old_one_and_lets_the_bound_be_expressed(limits, bits):
    wide, names = widen_ranges({"y": limits}, {"y": BOUND}, bits=bits)
    low, high = float(wide["y"]["min"][0, 0]), float(wide["y"]["max"][0, 0])
    assert low == limits["min"][0, 0]
    assert high >= limits["max"][0, 0]
    # What the kernel computes: the bound in steps, which has to fit an int32.
    scale = np.float32((high - min(0.0, low)) / LEVELS[bits])
    assert BOUND / scale < INT32_MAX
    assert (names == ["y"]) == (high != limits["max"][0, 0])


@given(limits=ranges | tiny, bits=st.sampled_from([8, 16]))
def test_widening_twice_changes_nothing_more(limits, bits):
    once, _ = widen_ranges({"y": limits}, {"y": BOUND}, bits=bits)
    twice, names = widen_ranges(once, {"y": BOUND}, bits=bits)
    assert names == []
    assert twice == once


def test_ranges_that_are_wide_enough_or_have_no_bound_are_left_alone():
    given_ranges = {"wide": limits_of(-1.0, 1.0), "free": limits_of(0.0, 1e-12)}
    wide, names = widen_ranges(given_ranges, {"wide": BOUND, "unknown": BOUND}, bits=8)
    assert names == []
    assert wide == given_ranges
    assert wide is not given_ranges


def test_what_was_given_is_not_changed():
    given_ranges = {"y": limits_of(0.0, 1e-12)}
    wide, names = widen_ranges(given_ranges, {"y": BOUND}, bits=8)
    assert names == ["y"]
    assert given_ranges["y"]["max"][0, 0] == 1e-12
    assert wide["y"]["max"][0, 0] > 1e-9


# The pass over the samples, in the real runtime


def ranges_of(samples: list[list[float]], batch: int = 1, which: str = "minmax") -> dict[str, Any]:
    """The ranges of x and y of y = x + x, over samples of two values."""
    graph = Graph()
    x = graph.tensor("x", (batch, 2), "float32")
    y = graph.computed("y", (batch, 2), "ADD", [x, x])
    model = packed(graph.model([x], [y], signature=("go", ["in"], ["out"])))
    return activation_ranges(
        model,
        {"go": Feed({"in": np.array(samples, np.float32)}, batch)},
        calibration_range=which,
        threads=1,
    )


def ends(limits: dict[str, Any]) -> tuple[float, float]:
    return float(np.min(limits["min"])), float(np.max(limits["max"]))


@pytest.mark.parametrize("batch", [1, 2])
def test_the_ranges_are_the_true_minima_and_maxima_of_all_samples(batch):
    found = ranges_of([[0, 1], [-5, 2], [3, 0.5], [0, 0]], batch)
    assert ends(found["x"]) == (-5.0, 3.0)
    assert ends(found["y"]) == (-10.0, 6.0)


def test_the_moving_average_clips_what_comes_once():
    low, high = ends(ranges_of([[0, 1]] * 5 + [[-5, 20]], which="ema")["x"])
    assert -5 < low < 0
    assert 1 < high < 20


@pytest.mark.parametrize("value", [1e30, np.inf, np.nan])
def test_a_range_that_no_working_model_has_is_refused_by_the_tensors_name(value):
    with fails(InputRefused):
        ranges_of([[0, 1], [value, 0]])


def test_a_model_of_weights_has_ranges_for_its_activations():
    model = packed(float_model(signature=("go", ["a"], ["b"])))
    found = activation_ranges(
        model,
        {"go": Feed({"a": np.eye(4, dtype=np.float32)}, 1)},
        calibration_range="minmax",
        threads=1,
    )
    # y = W x + b for the unit vectors: the extremes of W's columns, b added.
    assert ends(found["y"]) == (-39.0, 67.0)


# Whose error it is


class BuggyFeed(Feed):
    """As a mistake of ours in what the calibrator calls back."""

    def __iter__(self) -> Any:
        yield next(super().__iter__())
        raise KeyError("a mistake of ours")


def _ranges(key: str, feed: type[Feed]) -> dict[str, Any]:
    model = packed(float_model(signature=("go", ["a"], ["b"])))
    feeds = {key: feed({"a": np.eye(4, dtype=np.float32)}, 1)}
    return activation_ranges(model, feeds, calibration_range="minmax", threads=1)


def test_what_the_calibrator_raises_is_a_failed_tool():
    with fails(ToolFailed):
        _ranges("other", Feed)


def test_a_mistake_of_ours_that_the_calibrator_passes_on_stays_one(monkeypatch):
    monkeypatch.setitem(BuggyFeed.__iter__.__globals__, "__name__", "edgeconv.tests")
    with fails(KeyError):
        _ranges("go", BuggyFeed)


def test_a_mistake_of_ours_between_two_calls_of_the_runtime_stays_one(monkeypatch):
    """It was "calibration: KeyError" once, without a traceback anywhere."""

    def mistaken(*_: object, threads: int) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr("edgeconv.quantize.calibrate.softmax_floors", mistaken)
    model = packed(float_model(signature=("go", ["a"], ["b"])))
    feeds = {"go": Feed({"a": np.eye(4, dtype=np.float32)}, 1)}
    with fails(KeyError):
        CalibratedGraph(model, feeds, threads=1).fitted("minmax", bits=8)


def test_a_model_that_the_runtime_does_not_take_or_run_is_a_failed_tool():
    with fails(ToolFailed):
        open_interpreter(b"no model")
    model = open_interpreter(packed(float_model(signature=("go", ["a"], ["b"]))))
    with fails(ToolFailed):
        InProcessModel(model, "another")
    with fails(ToolFailed):
        InProcessModel(model, "go").invoke({"a": np.zeros((1, 2, 3), np.float32)})


@pytest.mark.filterwarnings("ignore:.*preserve_all_tensors")
def test_a_file_with_16_bits_serves_samples_beyond_the_calibrated_ones():
    """Cut off at the calibrated range, a fifth more than it costs 20 dB."""
    samples = np.linspace(-1, 1, 40, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    fitting, fresh = ({KEY: Feed({"x": each}, 1)} for each in (samples, 1.2 * samples))
    float_file = packed(float_model(signature=(KEY, ["x"], ["y"])))
    graph = CalibratedGraph(float_file, fitting, threads=1)
    model = make_file(graph, Recipe(name="int16x8"), MethodSettings("minmax", ())).model
    for feeds in (fitting, fresh):
        outputs = (outputs_of(each, feeds, threads=1) for each in (graph.model, model))
        assert lowest_snr_db(*outputs) > 40
