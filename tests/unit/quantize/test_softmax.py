import math

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import assume, given
from hypothesis import strategies as st
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import with_softmax_inputs
from edgeconv.quantize.calibrate import Feed
from edgeconv.quantize.ranges.softmax import Floor, cut_at_floors, softmax_floors

BITS = st.sampled_from([8, 16])
CLASSES = st.integers(2, 1000)
SIGNATURE = ("serve", ["x"], ["y"])
ROWS = np.array([[30, 0, -90], [2, 1, 0]], np.float32)


def floor(*, peak: float = 0.0, classes: int = 10, beta: float = 1.0) -> Floor:
    return Floor(("x",), peak, classes, beta)


def softmax(values: np.ndarray, beta: float = 1.0) -> np.ndarray:
    powers = np.exp(beta * (values - values.max(axis=-1, keepdims=True)))
    return powers / powers.sum(axis=-1, keepdims=True)


# What the floor claims


@given(
    peak=st.floats(-200, 200),
    classes=CLASSES,
    beta=st.floats(0.1, 4),
    bits=BITS,
    below=st.floats(0, 500),
)
def test_all_classes_below_the_floor_together_weigh_less_than_half_a_step(
    peak, classes, beta, bits, below
):
    """The worst row: the largest value is the lowest peak, and all others are at the floor."""
    least = floor(peak=peak, classes=classes, beta=beta).at(bits)
    row = np.full(classes, least - below)
    row[0] = peak
    assert softmax(row, beta)[1:].sum() < 0.5 / 2**bits


@given(
    values=st.lists(st.floats(-300, 300), min_size=2, max_size=40),
    beta=st.floats(0.2, 3),
    bits=BITS,
)
def test_clipping_at_the_floor_changes_no_probability_by_half_a_step(values, beta, bits):
    row = np.array(values)
    least = floor(peak=row.max(), classes=len(row), beta=beta).at(bits)
    change = np.abs(softmax(np.maximum(row, least), beta) - softmax(row, beta))
    assert change.max() < 0.5 / 2**bits


@given(
    rows=st.lists(st.lists(st.floats(-300, 300), min_size=6, max_size=6), min_size=1, max_size=8),
    bits=BITS,
)
def test_the_lowest_of_the_rows_peaks_serves_them_all(rows, bits):
    batch = np.array(rows)
    least = floor(peak=batch.max(axis=-1).min(), classes=6).at(bits)
    change = np.abs(softmax(np.maximum(batch, least)) - softmax(batch))
    assert change.max() < 0.5 / 2**bits


def test_the_floor_is_not_lower_than_it_must_be():
    """A step of the softmax above it, what is clipped would weigh as much as a step."""
    least = floor(classes=2).at(8)
    assert softmax(np.array([0.0, least + math.log(2)]))[1] > 0.45 / 256
    assert least > -7


def test_more_bits_see_further_down():
    assert floor().at(16) == pytest.approx(floor().at(8) - 8 * math.log(2))


def test_a_larger_beta_sees_less_far():
    assert floor(beta=2.0).at(8) == pytest.approx(floor(beta=1.0).at(8) / 2)


# What it does to the ranges


def ranges(**limits: tuple[float, float]) -> dict[str, dict[str, np.ndarray]]:
    return {n: {"min": np.array([a]), "max": np.array([b])} for n, (a, b) in limits.items()}


def test_only_the_lower_end_of_a_softmax_input_is_moved():
    given_ranges = ranges(x=(-400, 30), other=(-400, 30))
    cut, names = cut_at_floors(given_ranges, [floor(peak=5.0)], bits=8)
    assert names == ["x"]
    assert cut["x"]["min"] == pytest.approx([floor(peak=5.0).at(8)])
    assert cut["x"]["max"] == [30]
    assert cut["other"] == given_ranges["other"]
    assert given_ranges["x"]["min"] == [-400]


@pytest.mark.parametrize(
    "limits", [(-3.0, 30.0), (-400.0, -300.0)], ids=["above the floor", "all below it"]
)
def test_a_range_that_the_floor_is_not_within_stays(limits):
    cut, names = cut_at_floors(ranges(x=limits), [floor(peak=5.0)], bits=8)
    assert names == []
    assert cut == ranges(x=limits)


@given(low=st.floats(-1e4, 1e4), high=st.floats(-1e4, 1e4), peak=st.floats(-1e4, 1e4), bits=BITS)
def test_a_cut_range_is_never_wider_nor_empty(low, high, peak, bits):
    assume(low <= high)
    cut, _ = cut_at_floors(ranges(x=(low, high)), [floor(peak=peak)], bits=bits)
    assert low <= cut["x"]["min"][0] <= cut["x"]["max"][0] == high


def test_a_tensor_without_a_range_is_passed_over():
    assert cut_at_floors({}, [floor()], bits=8) == ({}, [])


# What is found in a graph


def graph_with_softmax(*, reader: str = "", reshaped: bool = False, beta: float = 1.0) -> bytes:
    """y = softmax(2 x), on (1, 3); `reader` reads what the softmax takes as well."""
    graph = Graph()
    x = graph.tensor("x", (1, 3), "float32")
    two = graph.tensor("two", (1, 3), "float32", data=np.full((1, 3), 2, np.float32))
    y = graph.tensor("y", (1, 3), "float32")
    logits = graph.computed("logits", (1, 3), "MUL", [x, two], options=schema.MulOptionsT())
    last, outputs = logits, [y]
    if reshaped:
        shape = graph.tensor("shape", (2,), "int32", data=np.array([1, 3], np.int32))
        last = graph.computed("flat", (1, 3), "RESHAPE", [logits, shape])
    graph.operator("SOFTMAX", [last], [y], options=schema.SoftmaxOptionsT(beta=beta))
    if reader == "operator":
        outputs.append(graph.tensor("relu", (1, 3), "float32"))
        graph.operator("RELU", [logits], [outputs[-1]])
    if reader == "output":
        outputs.append(logits)
    key, inputs, _ = SIGNATURE
    names = ["y", "z"][: len(outputs)]
    return packed(graph.model([x], outputs, signature=(key, inputs, names)))


def found(data: bytes) -> list[tuple[tuple[str, ...], int, float]]:
    _, inputs = with_softmax_inputs(data, lambda _: True)
    return [(one.tensors, one.classes, one.beta) for one in inputs]


def test_the_input_of_a_softmax_is_found_with_its_classes_and_beta():
    assert found(graph_with_softmax(beta=0.5)) == [(("logits",), 3, 0.5)]


def test_a_reshape_before_it_is_looked_through():
    assert found(graph_with_softmax(reshaped=True)) == [(("flat", "logits"), 3, 1.0)]


@pytest.mark.parametrize("reader", ["operator", "output"])
def test_what_something_else_reads_too_is_left_alone(reader):
    assert found(graph_with_softmax(reader=reader)) == []


@pytest.mark.parametrize("reader", ["operator", "output"])
def test_behind_a_reshape_only_what_nothing_else_reads_is_taken(reader):
    assert found(graph_with_softmax(reader=reader, reshaped=True)) == [(("flat",), 3, 1.0)]


def test_a_softmax_of_the_models_own_input_is_left_alone():
    """Its range is that of the input, which other values may be fed to."""
    graph = Graph()
    x, y = graph.tensor("x", (1, 3), "float32"), graph.tensor("y", (1, 3), "float32")
    graph.operator("SOFTMAX", [x], [y], options=schema.SoftmaxOptionsT(beta=1.0))
    assert found(packed(graph.model([x], [y], signature=SIGNATURE))) == []


def test_a_graph_with_nothing_to_find_comes_back_as_it_is():
    data = graph_with_softmax()
    assert with_softmax_inputs(data, lambda _: False) == (data, ())


@pytest.mark.parametrize("reshaped", [False, True])
def test_the_floor_is_from_the_lowest_peak_of_all_samples(reshaped):
    data = graph_with_softmax(reshaped=reshaped)
    wide = ranges(logits=(-180, 60), flat=(-180, 60))
    floors = softmax_floors(data, {"serve": Feed({"x": ROWS}, 1)}, wide, threads=1)
    assert [(one.lowest_peak, one.classes) for one in floors] == [(4.0, 3)]


def test_a_narrow_range_needs_no_second_look():
    narrow = ranges(logits=(-10, 10))
    floors = softmax_floors(
        graph_with_softmax(), {"serve": Feed({"x": ROWS}, 1)}, narrow, threads=1
    )
    assert floors == []
