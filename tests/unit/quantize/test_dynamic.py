"""What `dynamic` leaves in float, and how its kernels round the rest."""

import itertools

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import FloatLayer
from edgeconv.model.tflite.flatbuffer import operator_name, read
from edgeconv.model.tflite.operators import type_of
from edgeconv.quantize.calibrate import CalibratedGraph
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import small_layers
from edgeconv.types import LayerRule, Recipe

RECIPES = ("dynamic", "weight-only-int8", "weight-only-int4", "float16")
NONNEGATIVE = np.abs(np.random.default_rng(2).normal(size=(64, 64))).astype(np.float32)


def layer(name: str, weights: int, channels: int = 1, buffer: int = 0) -> FloatLayer:
    return FloatLayer(
        name,
        "CONV_2D",
        (name,),
        weights,
        can_have_four_bits=True,
        compressible=weights,
        channels=channels,
        buffer=buffer,
    )


def small(name: str, layers: list[FloatLayer], ruled: tuple[str, ...] = ()) -> set[str]:
    size = 4 * sum(each.compressible for each in layers)
    return {each.layer.name for each in small_layers(layers, Recipe(name=name), ruled, size)}


@pytest.mark.parametrize("name", RECIPES[:3])
def test_weights_whose_scales_take_more_than_they_save_stay_in_float(name):
    layers = [layer("first", 96, 48), layer("wide", 4800, 1600), layer("second", 9000, 48)]
    assert small(name, layers) == {"first", "wide"}
    assert small("int8", layers) == set()


def test_float16_unpacks_each_of_its_weights():
    assert small("float16", [layer("a", 96, 48), layer("b", 4800, 1600)]) == {"a"}


@pytest.mark.parametrize("name", RECIPES)
def test_the_only_weights_and_those_that_save_most_are_quantized(name):
    assert small(name, [layer("only", 1)]) == set()
    assert small(name, [layer("a", 4, 4), layer("b", 5, 4)]) == {"a"}


def test_small_weights_stay_in_float_up_to_a_quarter_of_a_dynamic_file():
    layers = [layer("heavy", 10_000), *(layer(f"small {n}", 500) for n in range(4))]
    assert small("dynamic", layers) == {"small 0", "small 1"}
    assert small("weight-only-int8", layers) == set()
    assert small("weight-only-int8", [layer("heavy", 60_000), *layers[1:]]) == {
        *("small 0", "small 1")
    }


def test_as_many_as_tflite_converter_quantizes_are_quantized():
    layers = [layer("heavy", 100_000), layer("a", 1023), layer("b", 1024)]
    assert small("dynamic", layers) == {"a"}


def test_what_saves_as_much_as_the_others_is_quantized():
    assert small("dynamic", [layer(str(n), 500) for n in range(20)]) == set()


def test_a_rule_decides_for_its_layer():
    layers = [layer("first", 96, 48), layer("second", 9000, 48)]
    assert small("dynamic", layers, ("first",)) == set()


def test_weights_that_layers_share_are_counted_once():
    shared = [layer(f"step {n}", 900, buffer=7) for n in range(20)]
    assert small("dynamic", [layer("heavy", 20_000), *shared]) == {each.name for each in shared}


def dense(*sizes: int, ends: str = "") -> bytes:
    """Dense layers of these sizes; before an operator at the end, one of bands of its inputs."""
    rng = np.random.default_rng(5)
    graph = Graph()
    first = before = graph.tensor("x", (1, sizes[0]), "float32")
    for number, (inputs, units) in enumerate(itertools.pairwise(sizes)):
        weights = np.abs(rng.normal(size=(units, inputs))).astype(np.float32)
        if ends:
            weights *= np.kron(np.eye(units), np.ones(inputs // units)).astype(np.float32)
        w = graph.tensor(f"w{number}", weights.shape, "float32", data=weights)
        b = graph.tensor(f"b{number}", (units,), "float32", data=np.full(units, 1e-6, np.float32))
        after = graph.tensor(f"y{number}", (1, units), "float32")
        graph.operator("FULLY_CONNECTED", [before, w, b], [after])
        before = after
    if ends:
        after = graph.tensor("end", (1, sizes[-1]), "float32")
        graph.operator(ends, [before], [after])
    return packed(graph.model([first], [after], signature=("serving_default", ["x"], ["y"])))


def made(data: bytes, **fields) -> bytes:
    graph = CalibratedGraph(data, {}, threads=1)
    asked = Recipe(name="dynamic", methods=(), **fields)
    return make_file(graph, asked, MethodSettings("minmax", ())).model


def answers(data: bytes, samples: np.ndarray, resolver: str = "AUTO") -> np.ndarray:
    kind = getattr(OpResolverType, resolver)
    runner = Interpreter(
        model_content=data, experimental_op_resolver_type=kind
    ).get_signature_runner()
    return np.concatenate([runner(x=row[None])["y"] for row in samples])


def snr_db(data: bytes, floating: bytes, samples: np.ndarray, resolver: str = "AUTO") -> float:
    expected = answers(floating, samples)
    error = answers(data, samples, resolver) - expected
    return float(10 * np.log10(np.mean(expected**2) / np.mean(error**2)))


def test_a_first_layer_of_few_inputs_costs_neither_bytes_nor_accuracy():
    floating = dense(2, 48, 48, 1)
    every = made(floating, layers=(LayerRule(pattern="FULLY_CONNECTED", precision="int8"),))
    plain = made(floating)
    assert len(plain) <= len(every)
    assert snr_db(plain, floating, NONNEGATIVE[:, :2]) > snr_db(every, floating, NONNEGATIVE[:, :2])


def test_inputs_that_are_never_negative_are_rounded_to_8_bits_without_the_delegate_too():
    floating = dense(64, 32)
    model = read(made(floating), where="it")
    (operator,) = model.subgraphs[0].operators
    assert operator.builtinOptions.asymmetricQuantizeInputs
    # The other form of the same file.
    operator.builtinOptions.asymmetricQuantizeInputs = False
    symmetric = packed(model)
    resolver = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    plain_db = snr_db(made(floating), floating, NONNEGATIVE, resolver)
    assert plain_db > snr_db(symmetric, floating, NONNEGATIVE, resolver) + 1


def test_activations_before_a_logarithm_stay_in_float_with_weights_of_8_bits():
    # Powers, most of them a small part of the largest one.
    powers = np.float32(10) ** np.random.default_rng(3).uniform(-6, 0, (64, 64)).astype(np.float32)
    floating = dense(64, 32, ends="LOG")
    file = made(floating)
    model = read(file, where="it")
    (graph,) = model.subgraphs
    assert [operator_name(model, each) for each in graph.operators] == [
        *("DEQUANTIZE", "FULLY_CONNECTED", "LOG")
    ]
    assert type_of(graph.tensors[graph.operators[0].inputs[0]]) == "int8"
    assert snr_db(file, floating, powers) > 40
    asked = made(floating, layers=(LayerRule(pattern="FULLY_CONNECTED", precision="int8"),))
    assert snr_db(asked, floating, powers) < 30
