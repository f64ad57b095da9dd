"""Layers of a quantized file that keeps neither the order nor the names of the float model's."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.quantize.calibrate import Feed
from edgeconv.quantize.refine.matching import match_layers, unmatched_layers
from edgeconv.quantize.refine.refining import refine_layers
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

RNG = np.random.default_rng(11)
# Six layers of one shape, side by side.
WEIGHTS = {name: RNG.normal(size=(8, 8)).astype(np.float32) for name in "abcdef"}
SAMPLES = RNG.gamma(1.0, size=(96, 1, 8)).astype(np.float32)
METHODS = frozenset({"rounding", "bias-correction"})
ORDERS = ["abcdef", "fedcba", "cafbed"]


def network(order: str, *, quantized: bool, prefix: str = "") -> bytes:
    """The sum of the layers in this order; with int8 weights on coarse scales if quantized."""
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32")
    terms = []
    for name in order:
        values = WEIGHTS[name]
        if quantized:
            scales = (np.abs(values).max(axis=1) / 7).astype(np.float32)
            integers = np.rint(values / scales[:, None]).astype(np.int8)
            w = graph.tensor(f"{prefix}{name}/w", (8, 8), "int8", data=integers, scale=scales)
        else:
            w = graph.tensor(f"{name}/w", (8, 8), "float32", data=values)
        terms.append(graph.tensor(f"{prefix}{name}", (1, 8), "float32"))
        graph.operator("FULLY_CONNECTED", [x, w], [terms[-1]], version=3)
    total = terms[0]
    for number, term in enumerate(terms[1:]):
        y = graph.computed(f"sum{number}", (1, 8), "ADD", [total, term])
        total = y
    return packed(graph.model([x], [total], signature=("serving_default", ["x"], ["y"])))


def pairs(order: str, floating: str = "abcdef") -> list[tuple[str, str]]:
    """The names of both sides of each pair."""
    quantized = parse(network(order, quantized=True, prefix="q"), where="it")
    float_model = parse(network(floating, quantized=False), where="the other")
    graph = quantized.subgraphs[0]
    return [
        (graph.tensors[layer.quantized.weights].name.decode()[1], layer.name)
        for layer in match_layers(quantized, float_model)
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_layers_of_one_shape_are_known_by_their_weights(order):
    assert pairs(order) == [(name, name) for name in order]


def answers(data: bytes) -> np.ndarray:
    model = InProcessModel(open_interpreter(data, threads=1), "serving_default")
    return np.concatenate([model.run({"x": row})["y"] for row in SAMPLES])


def error(data: bytes) -> float:
    return float(np.mean((answers(data) - answers(network("abcdef", quantized=False))) ** 2))


@pytest.mark.parametrize("order", ORDERS)
def test_layers_in_another_order_come_closer_to_the_float_model(order):
    plain = network(order, quantized=True, prefix="q")
    floating = network("abcdef", quantized=False)
    feeds = {"serving_default": Feed({"x": SAMPLES.reshape(-1, 8)}, 1)}
    refined = refine_layers(plain, floating, feeds, methods=METHODS, threads=1)
    assert [layer.name for layer in refined.layers] == list(order)
    assert refined.notes == ()
    assert error(refined.model) < error(plain) / 2


def test_a_layer_without_a_counterpart_is_left_out_with_a_note():
    plain = network("dba", quantized=True)
    floating = network("abcd", quantized=False)
    feeds = {"serving_default": Feed({"x": SAMPLES.reshape(-1, 8)}, 1)}
    refined = refine_layers(plain, floating, feeds, methods=METHODS, threads=1)
    assert [layer.name for layer in refined.layers] == ["d", "b", "a"]
    assert refined.notes == ("c: the quantized model has no layer with these weights",)


def test_a_layer_rounded_to_nothing_is_matched_in_order(monkeypatch):
    monkeypatch.setitem(WEIGHTS, "b", WEIGHTS["b"] * np.float32(1e-30))
    assert pairs("abcdef")[1] == ("b", "b")
    float_model = parse(network("abcdef", quantized=False), where="it")
    quantized = parse(network("abcdef", quantized=True), where="it")
    assert unmatched_layers(float_model, match_layers(quantized, float_model)) == ()
