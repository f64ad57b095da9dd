"""The largest values and sums of layers, against what numpy computes."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.half_floats import LARGEST, LayerMagnitude, magnitudes, overflow_warning

RNG = np.random.default_rng(6)


def graph_of(model: Graph, x: int, y: int, samples: np.ndarray) -> CalibratedGraph:
    content = packed(model.model([x], [y], signature=("key", ["x"], ["y"])))
    return CalibratedGraph(content, {"key": Feed({"x": samples}, 1)}, threads=1)


def test_a_dense_layer_adds_absolute_products():
    weights = RNG.normal(size=(3, 5)).astype(np.float32)
    model = Graph()
    x = model.tensor("x", (1, 5), "float32")
    w, b = model.tensor("w", (3, 5), "float32", data=weights), model.tensor("b", (3,), "float32")
    model.buffers.append(type(model.buffers[0])(data=np.ones(3, "<f4").view(np.uint8)))
    model.tensors[b].buffer = len(model.buffers) - 1
    y = model.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, b])
    samples = RNG.normal(size=(20, 5)).astype(np.float32)
    (layer,) = magnitudes(graph_of(model, x, y, samples))
    assert layer.operator == "FULLY_CONNECTED"
    assert layer.largest == pytest.approx(np.abs(samples @ weights.T + 1).max(), rel=1e-5)
    sums = np.abs(samples) @ np.abs(weights).T
    assert layer.largest_sum == pytest.approx(sums.max(), rel=1e-5)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_a_convolution_adds_absolute_products(kind):
    shape = (3, 1, 1, 3) if kind == "CONV_2D" else (1, 1, 1, 3)
    weights = RNG.normal(size=shape).astype(np.float32)
    model = Graph()
    x = model.tensor("x", (1, 4, 4, 3), "float32")
    w = model.tensor("w", shape, "float32", data=weights)
    b = model.tensor("b", (3,), "float32", data=np.zeros(3, np.float32))
    y = model.tensor("y", (1, 4, 4, 3), "float32")
    model.convolution([x, w, b], y, kind=kind, version=1)
    samples = RNG.normal(size=(8, 4, 4, 3)).astype(np.float32)
    (layer,) = magnitudes(graph_of(model, x, y, samples))
    flat = np.abs(weights.reshape(-1, 3))
    sums = np.abs(samples) @ flat.T if kind == "CONV_2D" else np.abs(samples) * flat
    assert layer.largest_sum == pytest.approx(sums.max(), rel=1e-5)


def test_a_mean_is_named_for_its_sum_and_other_layers_for_their_values():
    small = LayerMagnitude(layer="a", operator="ADD", largest=LARGEST, largest_sum=0)
    mean = LayerMagnitude(layer="b", operator="MEAN", largest=80, largest_sum=2 * LARGEST)
    large = LayerMagnitude(layer="c", operator="MUL", largest=1e6, largest_sum=0)
    assert overflow_warning((small,)) == ""
    warning = overflow_warning((small, mean, large))
    assert "b (MEAN: values to 80, sums to 131,008)" in warning
    assert "c (MUL: values to 1,000,000" in warning
    assert "a (" not in warning
