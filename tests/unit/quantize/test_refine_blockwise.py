"""4-bit weights with a scale for every 32 inputs: asked for, made, refined, and run by LiteRT."""

import itertools
import math

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from hypothesis import given, settings
from hypothesis import strategies as st
from refine_models import outputs
from tiny_tflite import Graph, packed
from wording import fails

from edgeconv.model.tflite import float_layers, oldest_runtime, summarize
from edgeconv.model.tflite.cut import prefixes
from edgeconv.model.tflite.edit import block_scales, is_in_blocks
from edgeconv.model.tflite.flatbuffer import operator_name, parse
from edgeconv.model.tflite.operators import type_of
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, QuantizedModel, make_file
from edgeconv.quantize.refine.refining import refine_layers
from edgeconv.quantize.refine.rounding import (
    absmax_scales,
    block_scales_of,
    damp_moment,
    quadratic_error,
    round_nearest,
    round_weights,
)
from edgeconv.quantize.rules import ruled_layers
from edgeconv.quantize.sensitivity import sensitivities
from edgeconv.requests.recipes import make_recipes, parse_rule
from edgeconv.types.errors import UsageError

# The quantiser asks for this mode itself.
RULE = "FULLY_CONNECTED=int4-block32"
REFINEMENTS = ("rounding", "bias-correction")
RELU = schema.ActivationFunctionType.RELU
RELU6 = schema.ActivationFunctionType.RELU6


def constants(sizes=(64, 96, 32), *, seed=0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (
            (rng.normal(size=(b, a)) * rng.uniform(0.2, 1, (b, a)) / np.sqrt(a)).astype(np.float32),
            rng.normal(0, 0.2, b).astype(np.float32),
        )
        for a, b in itertools.pairwise(sizes)
    ]


def dense(layers, activations=(RELU6, 0)) -> bytes:
    """Dense layers one after the other, by the names d0, d1 and so on."""
    graph = Graph()
    x = source = graph.tensor("x", (1, layers[0][0].shape[1]), "float32", dynamic=True)
    for number, (weights, bias) in enumerate(layers):
        w = graph.tensor(f"w{number}", weights.shape, "float32", data=weights)
        b = graph.tensor(f"b{number}", bias.shape, "float32", data=bias)
        target = graph.tensor(f"d{number}", (1, len(bias)), "float32", dynamic=True)
        graph.operator("FULLY_CONNECTED", [source, w, b], [target])
        graph.operators[-1].builtinOptions.fusedActivationFunction = activations[number]
        source = target
    return packed(graph.model([x], [source], signature=("serving_default", ["x"], ["y"])))


def samples(count=128, width=64, *, seed=1) -> np.ndarray:
    """Inputs that hang together, as activations do."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, 12)) @ np.random.default_rng(9).normal(size=(12, width))
    return (mixed / 3 + rng.normal(0, 0.2, (count, width)) + 0.5).astype(np.float32)


def feeds(**given) -> dict[str, Feed]:
    return {"serving_default": Feed({"x": samples(**given)}, 1)}


def recipe(*rules: str, name="dynamic"):
    (found,) = make_recipes([name], methods=["none"], layers=[parse_rule(rule) for rule in rules])
    return found


def made(float_model: bytes, *rules: str, methods=(), width=64) -> QuantizedModel:
    graph = CalibratedGraph(float_model, feeds(width=width), threads=1)
    return make_file(graph, recipe(*(rules or (RULE,))), MethodSettings("minmax", methods))


def stored(model: bytes) -> list[np.ndarray]:
    """The weights that the file stands for, layer by layer, (channels, d)."""
    parsed = parse(model, where="the test")
    graph, found = parsed.subgraphs[0], []
    for operator in graph.operators:
        tensor = graph.tensors[operator.inputs[1]] if len(operator.inputs) > 1 else None
        if tensor is not None and is_in_blocks(tensor):
            raw = np.frombuffer(bytes(parsed.buffers[tensor.buffer].data), np.int8)
            halves = np.stack([np.left_shift(raw, 4) >> 4, raw >> 4], axis=1)
            scales = block_scales(parsed, graph, tensor)
            found.append(halves.reshape(scales.shape) * scales.astype(np.float64))
    return found


def answered(weights, biases, x):
    """What the layers of `dense` give, in double precision."""
    hidden = np.clip(x @ weights[0].T + biases[0], 0, 6)
    return hidden @ weights[1].T + biases[1]


def off(actual, expected) -> float:
    return float(np.sqrt(np.mean((actual - expected) ** 2) / np.var(expected)))


@pytest.mark.parametrize("delegate", [True, False])
@pytest.mark.parametrize("methods", [(), ("rounding",)])
def test_litert_gives_what_the_stored_weights_stand_for(delegate, methods):
    layers = constants()
    model = made(dense(layers), methods=methods).model
    x = samples(40, seed=2)
    expected = answered(stored(model), [bias for _, bias in layers], x)
    # Activations are rounded to 8 bits on the way.
    assert off(outputs(model, x, delegate=delegate), expected) < 0.02
    plain = answered([weights for weights, _ in layers], [bias for _, bias in layers], x)
    assert off(expected, plain) > 0.02


def test_a_file_in_blocks_says_what_it_is():
    done = made(dense(constants()))
    assert done.four_bit == ("d0", "d1")
    assert done.notes == ()
    weights = 64 * 96 + 96 * 32
    share = summarize(done.model, where="it").quantized_weight_share
    assert share == pytest.approx(weights / (weights + 96 + 32))
    oldest = oldest_runtime(done.model, "it")
    assert [(need.operator, need.version) for need in oldest.unknown] == [("FULLY_CONNECTED", 14)]


def test_an_activation_gets_an_operator_of_its_own_and_the_output_keeps_its_name():
    model = parse(made(dense(constants(), (RELU, RELU6))).model, where="the test")
    operators = model.subgraphs[0].operators
    names = [operator_name(model, operator) for operator in operators]
    assert names == ["FULLY_CONNECTED", "RELU", "FULLY_CONNECTED", "RELU6"]
    tensors = model.subgraphs[0].tensors
    assert [tensors[o.outputs[0]].name.decode() for o in operators] == [
        "d0/before_activation",
        "d0",
        "d1/before_activation",
        "d1",
    ]


@pytest.mark.parametrize("delegate", [True, False])
def test_blocks_of_zeros_run(delegate):
    layers = constants()
    layers[0][0][3, :32] = 0
    layers[0][0][5] = 0
    x = samples(20, seed=3)
    for methods in ((), REFINEMENTS):
        model = made(dense(layers), methods=methods).model
        assert off(outputs(model, x, delegate=delegate), outputs(dense(layers), x)) < 0.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_refining_halves_the_error_on_fresh_samples(seed):
    float_model, x = dense(constants(seed=seed)), samples(200, seed=50 + seed)
    expected = outputs(float_model, x)
    before = off(outputs(made(float_model).model, x), expected)
    assert off(outputs(made(float_model, methods=REFINEMENTS).model, x), expected) < before / 2


def test_refining_again_makes_no_file_worse():
    float_model, x = dense(constants()), samples(200, seed=0)
    expected = outputs(float_model, x)
    model, last = made(float_model).model, math.inf
    for _ in range(3):
        done = refine_layers(model, float_model, feeds(), methods=frozenset(REFINEMENTS), threads=1)
        model = done.model
        now = off(outputs(model, x), expected)
        assert now <= last * 1.01
        assert all(layer.bits == 4 and not layer.left_alone for layer in done.layers)
        last = now


def test_weights_that_blocks_hold_exactly_stay_as_they_are():
    layers = constants()
    rng = np.random.default_rng(5)
    numbers = rng.integers(-7, 8, (96, 2, 32))
    numbers[:, :, 0] = 7
    exact = (numbers * 2.0 ** rng.integers(-6, -3, (96, 2, 1))).reshape(96, 64)
    layers[0] = (exact.astype(np.float32), layers[0][1])
    model = made(dense(layers), methods=REFINEMENTS).model
    np.testing.assert_array_equal(stored(model)[0], exact)


def test_scales_stay_what_the_kernels_take():
    model = parse(made(dense(constants()), methods=REFINEMENTS).model, where="the test")
    graph = model.subgraphs[0]
    for tensor in (one for one in graph.tensors if is_in_blocks(one)):
        scales = block_scales(model, graph, tensor)
        np.testing.assert_array_equal(block_scales_of(scales), scales)
        assert type_of(graph.tensors[tensor.quantization.details.scales]) == "float16"
    # A half goes to the even one.
    between = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20])
    np.testing.assert_array_equal(block_scales_of(between), [1, 1 + 2**-6, 1 + 2**-7])


def test_every_beginning_of_the_file_runs():
    model = made(dense(constants())).model
    begun = [outputs_of_any(part) for part in prefixes(model)]
    np.testing.assert_allclose(begun[-1], outputs(model, samples(1, seed=4)), atol=1e-5)


def outputs_of_any(part: bytes) -> np.ndarray:
    runner = Interpreter(model_content=part).get_signature_runner()
    return next(iter(runner(x=samples(1, seed=4)).values()))


def test_layers_whose_inputs_do_not_divide_are_left_and_named():
    done = made(dense(constants((64, 40, 32))))
    assert done.four_bit == ("d0",)
    assert len(done.notes) == 1
    assert "leaves d1 as they are" in done.notes[0]
    assert RULE in done.notes[0]
    assert len(stored(done.model)) == 1


@pytest.mark.parametrize("rule", [RULE, "d*=int4-block32"])
def test_a_rule_that_no_layer_can_follow_is_refused(rule):
    with fails(UsageError):
        ruled_layers(float_layers(dense(constants((40, 40, 32)))), recipe(rule))


@pytest.mark.parametrize("name", ["int8", "weight-only-int8", "weight-only-int4", "float16"])
def test_another_recipe_is_refused(name):
    with fails(UsageError):
        ruled_layers(float_layers(dense(constants())), recipe(RULE, name=name))


def test_a_rule_of_blocks_and_one_of_channels_contradict_each_other():
    with fails(UsageError):
        ruled_layers(float_layers(dense(constants())), recipe(RULE, "d1=int4"))


def test_blocks_and_channels_go_together_in_one_file():
    done = made(dense(constants()), "d0=int4-block32", "d1=int4", methods=REFINEMENTS)
    assert done.four_bit == ("d0", "d1")
    assert len(stored(done.model)) == 1
    x = samples(100, seed=7)
    assert off(outputs(done.model, x), outputs(dense(constants()), x)) < 0.2


def test_only_layers_that_can_have_blocks_have_a_sensitivity_to_them():
    float_model = dense(constants((64, 40, 32)))
    assert [one.can_have_blocks for one in float_layers(float_model)] == [True, False]
    found = sensitivities(CalibratedGraph(float_model, feeds(), threads=1), ["int4-block32"])
    assert [(one.layer, one.precision) for one in found] == [("d0", "int4-block32")]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), blocks=st.integers(1, 3), channels=st.integers(1, 6))
def test_no_channel_is_worse_than_rounded_to_nearest_in_its_blocks(seed, blocks, channels):
    rng = np.random.default_rng(seed)
    d = 32 * blocks
    weights = rng.normal(size=(1, channels, d)) * rng.uniform(0.01, 2, (1, channels, d))
    x = rng.normal(size=(64, 8)) @ rng.normal(size=(8, d)) + rng.normal(size=(64, d))
    moment = damp_moment((x.T @ x / 64)[None], 64)
    start = round_nearest(weights, block_scales_of(absmax_scales(weights, 4, block=32)), 4)
    found = round_weights(weights, moment, start, 4)
    before = quadratic_error(start.values, weights, moment)
    after = quadratic_error(found.values, weights, moment)
    assert (after <= before).all()
    np.testing.assert_array_equal(block_scales_of(found.scales), found.scales)
    by_block = found.scales.reshape(1, channels, blocks, 32)
    assert (by_block == by_block[..., :1]).all()
