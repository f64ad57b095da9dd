import math
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tiny_tflite import Graph, packed

from edgeconv.quantize.calibrate import Feed, activation_ranges
from edgeconv.quantize.ranges import histograms as module
from edgeconv.quantize.ranges.histograms import BINS, Histogram, histograms, sampled

WIDTH = 64


def histogram_of(values: np.ndarray) -> Histogram:
    """That of float32 values, with their own ends."""
    found = Histogram(np.zeros(BINS, np.int64), float(values.min()), float(values.max()))
    found.add(values)
    return found


def some_values(largest: float = 1e4) -> st.SearchStrategy[np.ndarray]:
    elements = st.floats(-largest, largest, width=32)
    arrays = hnp.arrays(np.float32, st.integers(2, 300), elements=elements)
    return arrays.filter(lambda a: float(a.max()) - float(a.min()) > 1e-3)


# Values into bins


@given(values=some_values())
@example(values=np.float32([8313, -512, 8316]))
def test_every_value_is_counted_within_a_bin_of_where_it_is(values):
    found = histogram_of(values)
    assert found.counts.sum() == len(values)
    counted = np.repeat(found.centers, found.counts)
    # A float32 that is multiplied and added to lies a hair beside the border of a bin.
    # The bin of an end stands for the end, which may be half a bin from the middle.
    is_end = (counted == found.low) | (counted == found.high)
    tolerance = np.where(is_end, 1.002, 0.502) * found.step + 1e-6 * np.abs(values).max()
    assert (np.abs(counted - np.sort(values)) <= tolerance).all()


@given(values=some_values())
def test_the_ends_and_zero_are_counted_as_exactly_what_they_are(values):
    values = np.append(values, np.float32(0))
    found = histogram_of(values)
    used = found.centers[found.counts > 0]
    for end, value in ((used[0], values.min()), (used[-1], values.max())):
        # An end that is in the bin of 0 counts as 0.
        assert end == value or (end == 0 and abs(value) < 0.502 * found.step)
    assert found.centers[found.origin_bin] == 0
    near = np.abs(values) < 0.4 * found.step
    assert found.counts[found.origin_bin] >= near.sum()


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6))
def test_the_bins_are_even_and_reach_from_end_to_end(low, width):
    found = Histogram(np.zeros(BINS, np.int64), low, low + width)
    assert found.edges[0] <= low + 1e-9 * abs(low)
    assert found.edges[-1] >= found.high - 1e-9 * abs(low)
    assert np.diff(found.edges) == pytest.approx(found.step, rel=1e-3)
    inside = found.centers[1:-2]
    assert ((found.edges[1:-3] <= inside) & (inside <= found.edges[2:-2])).all()


def test_far_from_zero_the_bins_are_told_apart():
    values = np.linspace(1e4, 1e4 + 16, 257, dtype=np.float32)
    assert (histogram_of(values).counts > 0).sum() == 257


@pytest.mark.parametrize("beyond", [-5.0, 7.0, 1e30, -1e30])
def test_what_is_beyond_an_end_counts_as_the_end(beyond):
    found = Histogram(np.zeros(BINS, np.int64), -1.0, 1.0)
    found.add(np.array([beyond], np.float32))
    assert found.counts.sum() == 1
    if abs(beyond) < 1e9:
        assert found.centers[found.counts > 0] == [math.copysign(1, beyond)]


# Which values of a large tensor


@given(size=st.integers(1, 20_000), most=st.integers(64, 4000), number=st.integers(0, 100))
def test_a_part_is_about_as_large_as_asked_and_of_the_tensor(size, most, number):
    values = np.arange(size, dtype=np.float32)
    part = sampled(values, number, most)
    assert len(part) == len(set(part)) <= most + 16
    assert set(part) <= set(values)
    assert len(part) == size or size > most


@given(blocks=st.integers(8, 200), most=st.integers(64, 2000))
def test_all_positions_are_seen_equally_often(blocks, most):
    values = np.arange(blocks * 16, dtype=np.float32)
    assume(len(values) > most)
    # Seen once in as many turns as the distance between blocks has; found by its own effect.
    turns = next(n for n in range(1, blocks + 2) if sampled(values, n, most)[0] == 0)
    seen = np.concatenate([sampled(values, n, most) for n in range(turns)])
    assert sorted(seen) == list(values)


@pytest.mark.parametrize("channels", [8, 24, 32, 96, 160])
def test_no_channel_is_passed_over_in_a_single_sample(channels):
    """An even distance would meet the same channels again and again."""
    channel = np.tile(np.arange(channels, dtype=np.float32), 56 * 56)
    part = sampled(channel, 3, 4096)
    share = np.bincount(part.astype(int), minlength=channels) / len(part)
    assert share.min() > 0.6 / channels
    assert share.max() < 1.5 / channels


def test_a_part_has_the_spread_of_the_whole():
    rng = np.random.default_rng(0)
    values = rng.gamma(2.0, size=2**19).astype(np.float32)
    parts = np.concatenate([sampled(values, n, 2**14) for n in range(4)])
    for share in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(parts, share) == pytest.approx(np.quantile(values, share), rel=0.03)


# The pass over the samples, in the real runtime


def chain(width: int = WIDTH, *, inner_name: str = "h") -> Graph:
    """y = |2 x| through h = x + x, on (1, width)."""
    graph = Graph()
    x = graph.tensor("x", (1, width), "float32")
    h = graph.computed(inner_name, (1, width), "ADD", [x, x])
    graph.computed("y", (1, width), "ABS", [h])
    return graph


def model_of(graph: Graph) -> bytes:
    return packed(graph.model([0], [len(graph.tensors) - 1], signature=("go", ["in"], ["out"])))


def calibrated(model: bytes, feeds: dict[str, Feed]) -> tuple[dict[str, Any], dict[str, Histogram]]:
    ranges = activation_ranges(model, feeds, calibration_range="minmax", threads=1)
    return ranges, histograms(model, feeds, ranges, threads=1)


def random_samples(count: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("batch", [1, 4])
def test_the_histogram_is_that_of_the_tensors_values(batch):
    samples = random_samples(12)
    graph = chain()
    for tensor in graph.tensors:
        tensor.shape = np.array([batch, WIDTH], np.int32)
    _, found = calibrated(model_of(graph), {"go": Feed({"in": samples}, batch)})
    assert set(found) == {"h"}
    assert found["h"].counts.sum() == samples.size
    assert (found["h"].counts == histogram_of(2 * samples.ravel()).counts).all()


def test_the_ends_of_the_histogram_are_those_of_the_first_pass_and_are_met():
    ranges, found = calibrated(model_of(chain()), {"go": Feed({"in": random_samples(9)}, 1)})
    assert found["h"].low == ranges["h"]["min"].min()
    assert found["h"].high == ranges["h"]["max"].max()
    used = np.flatnonzero(found["h"].counts)
    assert found["h"].centers[used[[0, -1]]] == pytest.approx([found["h"].low, found["h"].high])


def test_the_order_of_the_samples_makes_no_difference_where_all_is_counted():
    samples = random_samples(10)
    model = model_of(chain())
    _, one = calibrated(model, {"go": Feed({"in": samples}, 1)})
    _, other = calibrated(model, {"go": Feed({"in": samples[::-1]}, 1)})
    assert (one["h"].counts == other["h"].counts).all()


def test_of_a_large_tensor_each_sample_gives_a_part(monkeypatch):
    width = 4096
    samples = random_samples(6, width)
    model = model_of(chain(width))
    _, whole = calibrated(model, {"go": Feed({"in": samples}, 1)})
    monkeypatch.setattr(module, "MOST_ELEMENTS", 512)
    _, parts = calibrated(model, {"go": Feed({"in": samples}, 1)})
    assert whole["h"].counts.sum() == samples.size
    assert parts["h"].counts.sum() <= 6 * 512
    assert (parts["h"].counts <= whole["h"].counts).all()
    assert parts["h"].centers @ parts["h"].counts / parts["h"].counts.sum() == pytest.approx(
        float(2 * samples.mean()), abs=0.15
    )


def test_inputs_outputs_and_constant_tensors_have_none():
    samples = np.zeros((3, WIDTH), np.float32)
    samples[:, 0] = 0.0
    _, found = calibrated(model_of(chain()), {"go": Feed({"in": samples}, 1)})
    assert found == {}


def test_a_tensor_without_a_range_is_passed_over():
    feeds = {"go": Feed({"in": random_samples(2)}, 1)}
    assert histograms(model_of(chain()), feeds, {}, threads=1) == {}


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(1e-6, 1e6))
def test_any_scale_of_values_fills_the_same_bins(scale):
    samples = random_samples(4)
    model = model_of(chain())
    _, one = calibrated(model, {"go": Feed({"in": samples}, 1)})
    _, other = calibrated(model, {"go": Feed({"in": samples * np.float32(scale)}, 1)})
    # Rounding moves a value that lies on a border to the next bin.
    moved = np.abs(np.cumsum(one["h"].counts) - np.cumsum(other["h"].counts))
    assert moved.max() <= 2


# More than one graph in a file


def two_signatures() -> bytes:
    """first: |x + x| of 64 values; second: |x + x| of 8, in a graph of its own.

    The tensor between is called h in both; x and y have different names.
    """
    first = chain()
    model = first.model([0], [2], signature=("first", ["in"], ["out"]))
    second = chain(8)
    second.tensors[0].name, second.tensors[2].name = "x2", "y2"
    other = second.model([0], [2], signature=("second", ["in"], ["out"]))
    for operator in other.subgraphs[0].operators:
        operator.opcodeIndex += len(model.operatorCodes)
    other.signatureDefs[0].subgraphIndex = 1
    other.subgraphs[0].name = "second"
    model.operatorCodes += other.operatorCodes
    model.subgraphs += other.subgraphs
    model.signatureDefs += other.signatureDefs
    return packed(model)


def test_all_signatures_are_fed_and_a_name_that_they_share_has_one_histogram():
    feeds = {
        "first": Feed({"in": random_samples(5)}, 1),
        "second": Feed({"in": 3 * random_samples(7, 8)}, 1),
    }
    _, found = calibrated(two_signatures(), feeds)
    assert set(found) == {"h"}
    assert found["h"].counts.sum() == 5 * WIDTH + 7 * 8
    both = np.concatenate([feed_values(feeds[key]) for key in feeds])
    assert (found["h"].counts == histogram_of(2 * both).counts).all()


def feed_values(feed: Feed) -> np.ndarray:
    return np.concatenate([batch["in"].ravel() for batch in feed])


def with_branch(inner_name: str) -> bytes:
    """h = x + x, then y = |b| with b = h + h made in the branch of an IF that is always taken."""
    graph = Graph()
    x = graph.tensor("x", (1, WIDTH), "float32")
    yes = graph.tensor("yes", (1,), "bool", data=np.array([True]))
    h = graph.computed("h", (1, WIDTH), "ADD", [x, x])
    b = graph.computed(
        "b",
        (1, WIDTH),
        "IF",
        [yes, h],
        options=schema.IfOptionsT(thenSubgraphIndex=1, elseSubgraphIndex=1),
    )
    y = graph.computed("y", (1, WIDTH), "ABS", [b])
    model = graph.model([x], [y], signature=("go", ["in"], ["out"]))
    inside = chain(inner_name=inner_name)
    inside.tensors[0].name, inside.tensors[2].name = "branch_in", "branch_out"
    branch = inside.model([0], [2]).subgraphs[0]
    branch.name = "branch"
    for operator in branch.operators:
        operator.opcodeIndex += len(model.operatorCodes)
    model.operatorCodes += inside.codes
    model.subgraphs.append(branch)
    return packed(model)


def test_tensors_inside_a_branch_have_none_and_those_around_it_do():
    _, found = calibrated(with_branch("inner"), {"go": Feed({"in": random_samples(4)}, 1)})
    assert set(found) == {"b", "h"}
    assert found["b"].counts.sum() == 4 * WIDTH


def test_a_name_that_also_stands_for_a_tensor_inside_a_branch_has_none():
    """Its range is that of both, and only one of them can be seen."""
    _, found = calibrated(with_branch("h"), {"go": Feed({"in": random_samples(4)}, 1)})
    assert set(found) == {"b"}


def test_a_tensor_between_operators_that_the_runtime_would_fuse_is_seen():
    """A RELU after a FULLY_CONNECTED: the second pass has to see what the first saw."""
    graph = Graph()
    rng = np.random.default_rng(0)
    x = graph.tensor("x", (1, 8), "float32")
    w = graph.tensor("w", (4, 8), "float32", data=rng.normal(size=(4, 8)).astype(np.float32))
    h = graph.computed("h", (1, 4), "FULLY_CONNECTED", [x, w, -1])
    r = graph.computed("r", (1, 4), "RELU", [h])
    graph.computed("y", (1, 4), "ABS", [r])
    ranges, found = calibrated(model_of(graph), {"go": Feed({"in": random_samples(50, 8)}, 1)})
    assert ranges["h"]["min"].min() < 0 == found["r"].low
    for name in ("h", "r"):
        used = found[name].centers[found[name].counts > 0]
        assert used[[0, -1]] == pytest.approx([found[name].low, found[name].high])
        assert found[name].counts.sum() == 200
