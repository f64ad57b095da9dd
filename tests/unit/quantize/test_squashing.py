"""The range of what a sigmoid or tanh takes ends where these are constant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import squashed_tensors
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.ranges.softmax import cut_where_squashed, squashing_end
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes

# The quantiser asks for this mode itself.
KEY = "serving_default"
KINDS = ("LOGISTIC", "TANH")
KIND = st.sampled_from(KINDS)
FUNCTIONS = {"LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "TANH": np.tanh}
LIMITS = {"LOGISTIC": (0.0, 1.0), "TANH": (-1.0, 1.0)}


def ranges(low: float, high: float) -> dict[str, dict[str, np.ndarray]]:
    return {"x": {"min": np.array([low]), "max": np.array([high])}}


@given(kind=KIND, bits=st.sampled_from([8, 15]), beyond=st.floats(0, 300))
def test_beyond_its_end_an_output_is_within_half_a_step_of_its_limit(kind, bits, beyond):
    x = squashing_end(kind, bits) + beyond
    low, high = LIMITS[kind]
    half = (high - low) / 2**bits / 2
    assert high - FUNCTIONS[kind](x) <= half
    assert FUNCTIONS[kind](-x) - low <= half


@given(kind=KIND, low=st.floats(-2000, 2000), width=st.floats(0, 2000))
def test_a_cut_range_is_within_its_ends_and_gives_the_same_outputs(kind, low, width):
    cut, names = cut_where_squashed(ranges(low, low + width), {"x": kind}, bits=8)
    ((least,), (most,)) = cut["x"]["min"], cut["x"]["max"]
    assert -squashing_end(kind, 8) <= least <= most <= squashing_end(kind, 8) or not names
    values = np.linspace(low, low + width, 50)
    with np.errstate(over="ignore"):
        error = FUNCTIONS[kind](np.clip(values, least, most)) - FUNCTIONS[kind](values)
    assert np.abs(error).max() <= (LIMITS[kind][1] - LIMITS[kind][0]) / 512


def test_a_narrow_range_stays():
    assert cut_where_squashed(ranges(-3, 3), {"x": "TANH"}, bits=8) == (ranges(-3, 3), [])


def head(kind: str, *, scale: float = 250.0, reader: str = "", reshaped: bool = False) -> bytes:
    """Two dense layers and `kind`; far below 0 mostly, as a generator's background."""
    rng = np.random.default_rng(2)
    graph = Graph()
    last = graph.tensor("x", (1, 16), "float32", dynamic=True)
    for name, rows, columns in (("hidden", 32, 16), ("logits", 24, 32)):
        weights = (rng.normal(size=(rows, columns)) / np.sqrt(columns)).astype(np.float32)
        bias = np.zeros(rows, np.float32)
        if name == "logits":
            # Half of the values are the picture, and the others its background.
            weights[12:] *= scale
            bias[12:] = -2.5 * scale
        stored = graph.tensor(f"{name}/w", weights.shape, "float32", data=weights)
        biases = graph.tensor(f"{name}/b", bias.shape, "float32", data=bias)
        target = graph.tensor(name, (1, rows), "float32", dynamic=True)
        graph.operator("FULLY_CONNECTED", [last, stored, biases], [target])
        last = target
    logits = last
    if reshaped:
        shape = graph.tensor("shape", (2,), "int32", data=np.array([-1, 24], np.int32))
        last = graph.computed("flat", (1, 24), "RESHAPE", [logits, shape], dynamic=True)
    outputs = [graph.tensor("y", (1, 24), "float32", dynamic=True)]
    graph.operator(kind, [last], outputs)
    if reader:
        outputs.append(graph.tensor("z", (1, 24), "float32", dynamic=True))
        graph.operator("MUL", [logits, outputs[0]], [outputs[1]])
    return packed(graph.model([0], outputs, signature=(KEY, ["x"], ["y", "z"][: len(outputs)])))


def test_the_tensors_that_only_one_of_them_reads_are_found():
    assert squashed_tensors(head("TANH")) == {"logits": "TANH"}
    assert squashed_tensors(head("LOGISTIC", reshaped=True)) == dict.fromkeys(
        ("flat", "logits"), "LOGISTIC"
    )
    assert squashed_tensors(head("LOGISTIC", reader="MUL")) == {}
    assert squashed_tensors(head("RELU")) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["int8", "int16x8"])
def test_the_picture_keeps_its_values_beside_a_far_background(kind, name, monkeypatch):
    x = np.random.default_rng(0).normal(size=(96, 16)).astype(np.float32)
    feeds, fresh = ({KEY: Feed({"x": part}, 1)} for part in (x[:64], x[64:]))
    (recipe,) = make_recipes([name], methods=["none"])

    def snr_db() -> float:
        graph = CalibratedGraph(head(kind), feeds, threads=1)
        file = make_file(graph, recipe, MethodSettings("minmax", ())).model
        expected = outputs_of(head(kind), fresh, threads=1)
        return lowest_snr_db(expected, outputs_of(file, fresh, threads=1))

    cut_db = snr_db()
    monkeypatch.setattr("edgeconv.quantize.calibrate.squashed_tensors", lambda _: {})
    whole_db = snr_db()
    assert cut_db > 27
    assert cut_db > whole_db + (10 if name == "int8" else -0.1)
