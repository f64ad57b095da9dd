"""Channels whose weights are nearly zero: their biases fit, before and after every method."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from msgspec.structs import replace
from refine_models import float_network, outputs, parts, samples
from tiny_tflite import Graph, packed
from wording import fails

from edgeconv.conversion.candidate import Candidate
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.model.tflite import clipped_biases, with_fitting_biases
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.types import Recipe
from edgeconv.types.errors import VerificationFailed

RELU = schema.ActivationFunctionType.RELU
DEAD = (2, 5)
BIAS = np.array([3.78, 2.5], np.float32)
IMAGES = samples(64)
FRESH = samples(50, seed=99)
RECIPES = ("int8", "int16x8", "int8x4")
METHODS = ((), ("bias-correction",), ("rounding", "bias-correction"))


def dying() -> bytes:
    """The small network, in each of whose layers two channels have almost no weights."""
    layers = []
    for part in parts():
        kernel, bias = part.kernel.copy(), part.bias.copy()
        axis = 3 if part.operator == "DEPTHWISE_CONV_2D" else 0
        channels = np.moveaxis(kernel, axis, 0)
        for channel, value in zip(DEAD, BIAS, strict=True):
            if channel < len(channels):
                channels[channel] *= 1e-12
                bias[channel] = value
        layers.append(part._replace(kernel=kernel, bias=bias))
    return float_network(layers)


@pytest.fixture(scope="module")
def graph() -> CalibratedGraph:
    return CalibratedGraph(dying(), {"serving_default": Feed({"x": IMAGES}, 1)}, threads=1)


def error(graph: CalibratedGraph, data: bytes) -> float:
    """The error on fresh samples, as a share of the float output's power."""
    float_outputs = outputs(graph.model, FRESH)
    return float(np.sum((outputs(data, FRESH) - float_outputs) ** 2) / np.sum(float_outputs**2))


@pytest.mark.parametrize("methods", METHODS)
@pytest.mark.parametrize("name", RECIPES)
def test_no_bias_is_cut_off_by_any_recipe_or_method(graph, name, methods):
    file = make_file(graph, Recipe(name=name), MethodSettings("minmax", methods))
    assert clipped_biases(file.model) == ()
    assert any("so that the biases fit" in note for note in file.notes)
    # 4 bits lose more, and a lost bias of 3.78 nearly everything.
    assert error(graph, file.model) < (0.05 if name == "int8x4" else 0.001)


@pytest.mark.parametrize("rule", ["CONV_2D=int16x8", "FULLY_CONNECTED=int4", "depth=float32"])
def test_a_mixed_file_loses_no_bias(graph, rule):
    from edgeconv.requests.recipes import parse_rule

    recipe = Recipe(name="int8", layers=(parse_rule(rule),))
    file = make_file(graph, recipe, MethodSettings("minmax", ()))
    assert clipped_biases(file.model) == ()
    assert error(graph, file.model) < 0.05


def test_a_dense_layer_of_one_scale_loses_no_bias():
    graph = CalibratedGraph(
        packed(_dense(1e-13)), {"serving_default": Feed({"x": _rows()}, 1)}, threads=1
    )
    settings = MethodSettings("minmax", ())
    file = make_file(graph, Recipe(name="int8"), settings, dense_per_tensor=True)
    assert clipped_biases(file.model) == ()
    np.testing.assert_allclose(_answers(file.model), _answers(graph.model), atol=0.03)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("factor", [1e-12, 1e-5, 1.0])
@pytest.mark.parametrize("layer", range(3))
def test_a_layer_that_never_fires_runs_and_loses_nothing(layer, factor, name):
    layers = parts()
    dead = layers[layer]
    layers[layer] = dead._replace(
        kernel=dead.kernel * np.float32(factor), bias=dead.bias * 0 - 3.78, activation=RELU
    )
    feeds = {"serving_default": Feed({"x": IMAGES}, 1)}
    graph = CalibratedGraph(float_network(layers), feeds, threads=1)
    file = make_file(graph, Recipe(name=name), MethodSettings("minmax", ()))
    assert clipped_biases(file.model) == ()
    assert error(graph, file.model) < 0.01


def test_an_input_that_is_always_zero_loses_no_bias():
    rows = np.zeros_like(_rows())
    graph = CalibratedGraph(
        packed(_dense(1.0)), {"serving_default": Feed({"x": rows}, 1)}, threads=1
    )
    file = make_file(graph, Recipe(name="int8"), MethodSettings("minmax", ()))
    assert clipped_biases(file.model) == ()


def test_a_file_whose_biases_fit_is_not_touched():
    healthy = CalibratedGraph(
        float_network(), {"serving_default": Feed({"x": IMAGES}, 1)}, threads=1
    )
    file = make_file(healthy, Recipe(name="int8"), MethodSettings("minmax", ()))
    assert file.notes == ()
    assert with_fitting_biases(file.model, healthy.model) == (file.model, 0)


def test_another_float_model_changes_nothing(graph):
    clipped = packed(_clipped("int32", 2**31 - 1))
    assert with_fitting_biases(clipped, float_network()) == (clipped, 0)


LIMITS = [
    ("int32", 2**31 - 1),
    ("int32", -(2**31)),
    ("int64", 2**31 - 1),
    ("int64", -(2**31) + 1),
    ("int64", 2**47),
]
WITHIN = [("int32", 2**31 - 2), ("int64", 2**31), ("int64", 2**40)]


@pytest.mark.parametrize(("kind", "value"), LIMITS)
@pytest.mark.parametrize("engine", ["litert", "tflite"])
def test_verification_refuses_a_bias_at_its_limit_from_either_engine(tmp_path, kind, value, engine):
    with fails(VerificationFailed):
        verify_graph(_candidate(tmp_path, kind, value, engine), ["serving_default"])


@pytest.mark.parametrize(("kind", "value"), WITHIN)
def test_verification_takes_a_large_bias_that_fits(tmp_path, kind, value):
    assert verify_graph(_candidate(tmp_path, kind, value, "litert"), ["serving_default"])


def _candidate(directory: Path, kind: str, value: int, engine: str) -> Candidate:
    file = directory / "it.tflite"
    file.write_bytes(packed(_clipped(kind, value)))
    recipe = Recipe(name="int8" if kind == "int32" else "int16x8")
    recipe = replace(recipe, input_type=_activation(kind), output_type=_activation(kind))
    return Candidate(recipe=recipe, file=file, engine=engine)


def _activation(kind: str) -> str:
    return {"int32": "int8", "int64": "int16"}[kind]


def _clipped(kind: str, value: int):
    """A dense layer, one of whose biases has this value."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), _activation(kind), scale=0.5)
    w = graph.tensor("w", (3, 4), "int8", data=np.ones((3, 4), np.int8), scale=1e-12)
    b = graph.tensor("b", (3,), kind, data=np.array([1, value, 3], kind), scale=5e-13)
    y = graph.tensor("y", (1, 3), _activation(kind), scale=0.1)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y], version=4)
    return graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))


def _rows() -> np.ndarray:
    return np.random.default_rng(3).uniform(0, 2, (40, 4)).astype(np.float32)


def _dense(factor: float):
    """A dense layer whose weights are this small."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    values = np.random.default_rng(5).normal(size=(3, 4)) * factor
    w = graph.tensor("w", (3, 4), "float32", data=values.astype(np.float32))
    b = graph.tensor("b", (3,), "float32", data=np.array([1.0, -2.0, 3.0], np.float32))
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, b], dynamic=True)
    return graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))


def _answers(data: bytes) -> np.ndarray:
    return outputs(data, _rows())


@pytest.mark.parametrize("name", ["int8", "int16x8"])
def test_a_transposed_convolution_loses_no_bias(name):
    graph = Graph()
    size = graph.tensor("size", (4,), "int32", data=np.array([1, 4, 4, 3], np.int32))
    kernel = np.random.default_rng(6).normal(size=(3, 2, 2, 2)).astype(np.float32)
    kernel[1] *= np.float32(1e-12)
    w = graph.tensor("w", kernel.shape, "float32", data=kernel)
    x = graph.tensor("x", (1, 2, 2, 2), "float32")
    b = graph.tensor("b", (3,), "float32", data=np.array([1.0, -3.78, 0.5], np.float32))
    y = graph.computed("y", (1, 4, 4, 3), "TRANSPOSE_CONV", [size, w, x, b], version=3)
    options = schema.TransposeConvOptionsT()
    options.strideH = options.strideW = 2
    options.padding = schema.Padding.SAME
    graph.operators[-1].builtinOptions = options
    graph.operators[-1].builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
    data = packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))
    rows = np.random.default_rng(7).normal(size=(40, 2, 2, 2)).astype(np.float32)
    calibrated = CalibratedGraph(data, {"serving_default": Feed({"x": rows}, 1)}, threads=1)
    file = make_file(calibrated, Recipe(name=name), MethodSettings("minmax", ()))
    assert clipped_biases(file.model) == ()
    dead = outputs(file.model, rows)[..., 1]
    np.testing.assert_allclose(dead, -3.78, atol=0.05)
