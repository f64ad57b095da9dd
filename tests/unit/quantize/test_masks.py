"""Masks of attention become numbers that integers can hold, and the softmax stays the same."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import largest_scales, summarize
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.trials import outputs_of
from edgeconv.types import LayerRule, Recipe

KEY = "serving_default"
LEAST = float(np.finfo(np.float32).min)
ROW = (1, 8)
RANDOM = np.random.default_rng(5)
MASK = (np.arange(8) < RANDOM.integers(2, 8, (60, 1))).astype(np.int32)
GAPS = np.where(np.arange(60)[:, None] % 5, MASK, 0).astype(np.int32)
LOGITS = RANDOM.normal(0, 3, (60, 8)).astype(np.float32)


def softmax(graph: Graph, logits: int) -> int:
    y = graph.tensor("y", ROW, "float32", dynamic=True)
    graph.operator("SOFTMAX", [logits], [y], options=schema.SoftmaxOptionsT(beta=1.0))
    return y


def selected(depth: float = 0.0) -> bytes:
    """What Keras 3 writes: the logits where the mask is not 0, else less a depth, or the least."""
    graph = Graph()
    x = graph.tensor("x", ROW, "float32", dynamic=True)
    mask = graph.tensor("mask", ROW, "int32", dynamic=True)
    zero = graph.tensor("zero", (), "int32", data=np.int32(0))
    least = graph.tensor("least", (), "float32", data=np.float32(depth or LEAST))
    other = graph.computed("far", ROW, "SUB", [x, least], dynamic=True) if depth else least
    is_seen = graph.computed("seen", ROW, "NOT_EQUAL", [mask, zero], "bool", dynamic=True)
    logits = graph.computed("logits", ROW, "SELECT_V2", [is_seen, x, other], dynamic=True)
    y = softmax(graph, logits)
    return packed(graph.model([x, mask], [y], signature=(KEY, ["x", "mask"], ["y"])))


def added(depth: float) -> bytes:
    """What tf_keras and BERT write: (1 - mask) * depth is added."""
    graph = Graph()
    x = graph.tensor("x", ROW, "float32", dynamic=True)
    mask = graph.tensor("mask", ROW, "int32", dynamic=True)
    one = graph.tensor("one", (), "float32", data=np.float32(1))
    factor = graph.tensor("factor", (), "float32", data=np.float32(depth))
    names = ("cast", "rest", "bias", "logits")
    cast, rest, bias, logits = (graph.tensor(n, ROW, "float32", dynamic=True) for n in names)
    graph.operator("CAST", [mask], [cast])
    for name, inputs, output in (
        ("SUB", [one, cast], rest),
        ("MUL", [rest, factor], bias),
        ("ADD", [x, bias], logits),
    ):
        graph.operator(name, inputs, [output])
        kind = name.title()
        graph.operators[-1].builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
        graph.operators[-1].builtinOptions = getattr(schema, f"{kind}OptionsT")()
    y = softmax(graph, logits)
    return packed(graph.model([x, mask], [y], signature=(KEY, ["x", "mask"], ["y"])))


MODELS = {
    "selected": selected(),
    "shifted": selected(1e9),
    "added 1e9": added(-1e9),
    "added 1e4": added(-1e4),
    "added least": added(LEAST),
}


def calibrated(model: bytes, mask: np.ndarray = MASK) -> CalibratedGraph:
    return CalibratedGraph(model, {KEY: Feed({"x": LOGITS, "mask": mask}, 1)}, threads=1)


@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
@pytest.mark.parametrize("model", MODELS)
def test_a_masked_softmax_is_integer_and_right(model, recipe):
    graph = calibrated(MODELS[model])
    file = make_file(graph, Recipe(name=recipe), MethodSettings("minmax", ()))
    assert summarize(file.model, where="test").float_operators == ()
    assert max(largest_scales(file.model).values()) < 10
    assert any("masks" in note for note in file.notes)
    expected = outputs_of(graph.model, graph.feeds, threads=1)[KEY, "y"]
    actual = outputs_of(file.model, graph.feeds, threads=1)[KEY, "y"]
    assert np.abs(actual - expected).max() < 0.05
    assert np.abs(actual[MASK == 0]).max() < 0.005


@pytest.mark.parametrize("model", MODELS)
def test_a_row_that_is_masked_throughout_keeps_its_equal_parts(model):
    """A padding position of Keras sees nothing: what is added must not leave its logits."""
    graph = calibrated(MODELS[model], GAPS)
    equal, notes = graph.with_kernels_for(Recipe(name="int8"))
    assert notes
    expected = outputs_of(graph.model, graph.feeds, threads=1)[KEY, "y"]
    answers = outputs_of(equal.model, graph.feeds, threads=1)[KEY, "y"]
    np.testing.assert_allclose(answers, expected, atol=5e-4)
    if model != "added 1e4":
        # In a float32, logits keep their differences beside a mask of that depth.
        np.testing.assert_allclose(answers[::5], 1 / 8, atol=1e-5)


def test_rows_that_are_masked_throughout_do_not_widen_the_range_of_the_others():
    with_rows, without = (
        calibrated(MODELS["selected"], each).with_kernels_for(Recipe(name="int8"))[0]
        for each in (GAPS, MASK)
    )
    lows = [
        float(graph.fitted("minmax", bits=8).ranges["logits"]["min"].min())
        for graph in (with_rows, without)
    ]
    assert lows[0] == pytest.approx(lows[1], abs=0.5)
    assert lows[0] > LOGITS.min() - 10


def test_a_rule_that_is_added_later_does_not_rewrite_again():
    graph, notes = calibrated(MODELS["selected"]).with_kernels_for(Recipe(name="int8"))
    ruled = Recipe(name="int8", layers=(LayerRule(pattern="SOFTMAX", precision="float32"),))
    assert graph.with_kernels_for(ruled) == (graph, notes)


def test_logits_without_a_mask_stay():
    graph = calibrated(added(-3.0))
    assert graph.with_kernels_for(Recipe(name="int8")) == (graph, ())
