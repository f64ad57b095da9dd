"""What a layer sees of its input, held against the runtime's own convolutions."""

import itertools

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed, run

from edgeconv.quantize.refine.layers import from_rows, to_rows
from edgeconv.quantize.refine.moments import (
    Geometry,
    Moments,
    Quantity,
    Window,
    lacking,
    layer_outputs,
    moments,
)

IMAGE = (7, 10)


def moments_of(x: Quantity, own: Quantity, geometry: Geometry, weights: np.ndarray) -> Moments:
    return moments(x, layer_outputs(own, geometry, weights, means=False), geometry)


def convolved(operator, x, kernel, window, multiplier):
    graph = Graph()
    channels = kernel.shape[3] if operator == "DEPTHWISE_CONV_2D" else kernel.shape[0]
    given = graph.tensor("x", x.shape, "float32")
    weights = graph.tensor("w", kernel.shape, "float32", data=kernel)
    bias = graph.tensor("b", (channels,), "float32", data=np.zeros(channels, np.float32))
    y = graph.tensor("y", (len(x), *window.outputs(IMAGE), channels), "float32")
    graph.operator(operator, [given, weights, bias], [y], version=6)
    depthwise = operator == "DEPTHWISE_CONV_2D"
    options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
    if depthwise:
        options.depthMultiplier = multiplier
    options.strideH, options.strideW = window.strides
    options.dilationHFactor, options.dilationWFactor = window.dilations
    options.padding = schema.Padding.SAME if window.same else schema.Padding.VALID
    graph.operators[-1].builtinOptions = options
    name = type(options).__name__.removesuffix("T")
    graph.operators[-1].builtinOptionsType = getattr(schema.BuiltinOptions, name)
    return run(packed(graph.model([given], [y])), x)[0]


WINDOWS = [
    Window((3, 3), (1, 1), (1, 1), same=True),
    Window((3, 2), (2, 3), (1, 1), same=True),
    Window((3, 3), (2, 2), (1, 1), same=False),
    Window((2, 3), (1, 1), (2, 3), same=True),
    Window((2, 2), (1, 1), (3, 2), same=False),
    Window((1, 1), (2, 2), (1, 1), same=True),
]
KINDS = [("CONV_2D", 1, 6, 1), ("CONV_2D", 2, 6, 1), ("DEPTHWISE_CONV_2D", 4, 4, 1)]
KINDS += [("DEPTHWISE_CONV_2D", 4, 8, 2)]


@pytest.mark.parametrize(("kind", "window"), list(itertools.product(KINDS, WINDOWS)))
def test_the_moments_are_those_of_what_the_runtime_computes(kind, window):
    operator, groups, channels, multiplier = kind
    rng = np.random.default_rng(0)
    x = rng.normal(1, 1, (3, *IMAGE, 4)).astype(np.float32)
    within = (1, *window.kernel, channels)
    shape = within if operator[0] == "D" else (channels, *window.kernel, 4 // groups)
    kernel = rng.normal(size=shape).astype(np.float32)
    geometry = Geometry(groups, window.kernel[0] * window.kernel[1] * 4 // groups, window)
    rows = to_rows(kernel.astype(np.float64), operator, groups)
    seen = moments_of(Quantity(x), Quantity(x), geometry, rows)
    y = convolved(operator, x, kernel, window, multiplier).reshape(-1, channels)
    assert seen.rows == len(y)
    np.testing.assert_allclose(seen.output_mean.ravel(), y.mean(axis=0), atol=1e-4)
    # The same by the moments of the inputs.
    own = np.einsum("gcd,gde,gce->gc", rows, seen.covariance, rows)
    np.testing.assert_allclose(own.ravel(), y.var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(seen.lacking(rows), 0, atol=1e-4)
    np.testing.assert_array_equal(from_rows(rows, operator, kernel.shape), kernel)


def test_a_dense_layer_sees_all_of_its_input_in_rows():
    x = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)
    weights = np.eye(4)[None]
    seen = moments_of(Quantity(x), Quantity(x), Geometry(1, 4, None), weights)
    rows = x.reshape(-1, 4)
    assert seen.rows == 6
    np.testing.assert_allclose(seen.mean[0], rows.mean(axis=0))
    np.testing.assert_allclose(seen.covariance[0], np.cov(rows.T, bias=True))
    np.testing.assert_allclose(seen.cross[0], np.cov(rows.T, bias=True))


def test_integers_are_taken_for_what_they_stand_for():
    x = np.array([[10, -6], [0, 4]], np.int8)
    geometry, weights = Geometry(1, 2, None), np.ones((1, 1, 2))
    seen = moments_of(Quantity(x, 0.5, 2), Quantity(x, 0.5, 2), geometry, weights)
    np.testing.assert_allclose(seen.mean[0], [1.5, -1.5])
    np.testing.assert_allclose(seen.output_mean[0], [0.0])


def test_large_means_cost_no_digits():
    x = np.random.default_rng(0).normal(1000, 0.01, (500, 3)).astype(np.float32)
    seen = moments_of(Quantity(x), Quantity(x), Geometry(1, 3, None), np.eye(3)[None])
    wanted = np.cov(x.astype(np.float64).T, bias=True)
    np.testing.assert_allclose(seen.covariance[0], wanted, atol=1e-7)


def test_what_the_outputs_lack_is_the_mean_of_the_difference():
    rng = np.random.default_rng(0)
    own, x = rng.normal(1, 1, size=(2, 300, 5)).astype(np.float32)
    weights, other = rng.normal(size=(2, 1, 4, 5))
    seen = moments_of(Quantity(x), Quantity(own), Geometry(1, 5, None), weights)
    y, have = own @ weights[0].T, x @ other[0].T
    np.testing.assert_allclose(seen.lacking(other)[0], np.mean(y - have, axis=0), rtol=1e-4)
    about_zero = seen.about_zero()
    second = np.einsum("ni,nj->ij", x, x) / 300
    np.testing.assert_allclose(about_zero.covariance[0], second, rtol=1e-4)
    np.testing.assert_allclose(about_zero.cross[0], x.T @ y / 300, rtol=1e-3, atol=1e-4)


def test_very_many_positions_are_thinned_out_evenly():
    x = np.zeros((50, 100, 100, 2), np.float32)
    x[:, :, :50, 0], x[:, 50:, :, 1] = 1, 1
    window = Window((1, 1), (1, 1), (1, 1), same=True)
    seen = moments_of(Quantity(x), Quantity(x), Geometry(1, 2, window), np.ones((1, 1, 2)))
    assert seen.rows == 2000
    np.testing.assert_allclose(seen.mean, 0.5, atol=0.02)
    np.testing.assert_allclose(seen.covariance[0], np.eye(2) / 4, atol=0.02)
    deep = Geometry(2, 1, window)
    assert moments_of(Quantity(x), Quantity(x), deep, np.ones((2, 1, 1))).rows == 1000


def test_outputs_are_compared_the_same_way_without_second_moments():
    rng = np.random.default_rng(0)
    x, own = rng.normal(2, 1, size=(2, 60, 5, 6, 2)).astype(np.float32)
    geometry = Geometry(2, 4, Window((2, 2), (1, 2), (1, 1), same=True))
    weights, other = rng.normal(size=(2, 2, 3, 4))
    floats = layer_outputs(Quantity(own), geometry, weights, means=True)
    found = lacking(Quantity(x), floats, geometry, other)
    wanted = moments_of(Quantity(x), Quantity(own), geometry, weights).lacking(other)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
