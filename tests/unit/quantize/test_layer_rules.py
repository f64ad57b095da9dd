"""Rules for single layers: parsed, held against a graph, and followed by the quantiser."""

import copy

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tiny_tflite import Graph, packed
from two_dense import FIRST, SECOND, THIRD, two_dense
from wording import fails

from edgeconv.model.tflite import FloatLayer, float_layers, summarize
from edgeconv.model.tflite.flatbuffer import parse, read, serialize
from edgeconv.model.tflite.operators import RULED, float_groups, float_operators
from edgeconv.model.tflite.summary import tensor_specs
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import kept_layers, rule_notes, ruled_layers, weight_bits
from edgeconv.requests.recipes import make_recipes, parse_rule
from edgeconv.types import LayerRule
from edgeconv.types.errors import ToolFailed, UsageError

# The quantiser asks for this mode itself.
LAYERS = float_layers(two_dense())


def feeds(samples: int = 64) -> dict[str, Feed]:
    rng = np.random.default_rng(1)
    return {"serving_default": Feed({"x": rng.normal(size=(samples, 8)).astype(np.float32)}, 1)}


def recipe(name: str, *texts: str):
    (found,) = make_recipes([name], methods=["none"], layers=[parse_rule(t) for t in texts])
    return found


def made(name: str, *texts: str) -> bytes:
    graph = CalibratedGraph(two_dense(), feeds(), threads=1)
    return make_file(graph, recipe(name, *texts), MethodSettings("minmax", ())).model


def test_the_layers_of_a_graph_have_names_operators_and_counts_of_weights():
    layers = float_layers(two_dense())
    assert [(one.name, one.operator, one.weights) for one in layers] == [
        (FIRST, "FULLY_CONNECTED", 48),
        (SECOND, "FULLY_CONNECTED", 24),
        (THIRD, "ADD", 4),
    ]
    assert [one.can_have_four_bits for one in layers] == [True, True, False]


def test_a_rule_is_a_pattern_and_a_precision():
    assert parse_rule("a=b=*=int4") == LayerRule(pattern="a=b=*", precision="int4")


@pytest.mark.parametrize("text", ["conv", "=int8", "conv=int9", "conv="])
def test_a_text_that_is_no_rule_is_refused(text):
    with fails(UsageError):
        parse_rule(text)


@pytest.mark.parametrize("pattern", [SECOND, "*dense_1*", "net/dense_1?0?/MatMul"])
def test_a_layer_is_found_by_its_exact_name_or_by_wildcards(pattern):
    found = ruled_layers(LAYERS, recipe("int8", f"{pattern}=float32"))
    assert list(found) == [SECOND]
    assert found[SECOND].is_float


def test_layers_are_found_by_their_operator():
    found = ruled_layers(LAYERS, recipe("int8", "FULLY_CONNECTED=int16x8"))
    assert list(found) == [FIRST, SECOND]


def test_two_rules_that_contradict_each_other_are_both_named():
    asked = recipe("int8", "FULLY_CONNECTED=int4", "*dense_1*=float32")
    with fails(UsageError):
        ruled_layers(LAYERS, asked)


def test_two_rules_that_agree_are_one():
    asked = recipe("int8", "FULLY_CONNECTED=int4", "*dense_1*=int4")
    assert list(ruled_layers(LAYERS, asked)) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("dense", [FIRST]),
        ("dense_1[0]", [SECOND]),
        ("dense*", [FIRST, SECOND]),
        ("?ense", [FIRST]),
        (FIRST, [FIRST]),
        ("net/dense/*", [FIRST]),
        ("*MatMul", [SECOND]),
    ],
)
def test_short_names_and_names_of_tensors_are_both_taken(pattern, expected):
    assert list(ruled_layers(LAYERS, recipe("int8", f"{pattern}=float32"))) == expected


def named(*names: str):
    """Layers whose tensors have these names."""
    graph = Graph()
    last = first = graph.tensor("x", (1, 4), "float32", dynamic=True)
    constant = graph.tensor("c", (1, 4), "float32", data=np.ones((1, 4), np.float32))
    for name in names:
        target = graph.computed(name, (1, 4), "ADD", [last, constant], dynamic=True)
        last = target
    return float_layers(packed(graph.model([first], [last], signature=("main", ["x"], ["y"]))))


def test_the_name_of_one_layer_is_no_pattern_for_others():
    layers = named("net/a[0]", "net/a0")
    assert list(ruled_layers(layers, recipe("int8", "a[0]=float32"))) == ["net/a[0]"]


def test_a_name_that_two_nested_models_have_is_refused_with_both():
    layers = named("m/left/conv", "m/right/conv", "m/head")
    with fails(UsageError):
        ruled_layers(layers, recipe("int8", "conv=float32"))
    assert len(ruled_layers(layers, recipe("int8", "*/conv=float32"))) == 2


@pytest.mark.parametrize("pattern", ["heads", "CONV", "zzz"])
def test_a_pattern_that_no_layer_fits_is_refused_with_similar_names(pattern):
    layers = named("m/left/conv", "m/right/conv", "m/head")
    with fails(UsageError):
        ruled_layers(layers, recipe("int8", f"{pattern}=float32"))


def test_a_pattern_that_fits_a_layer_by_its_tensor_alone_is_noted():
    layers = named("net_1/dense_1/x", "net_1/dense_1_2/x", "net_1/dense_2_1/x")
    assert [layer.short_name for layer in layers] == ["dense/x", "dense_1/x", "dense_2/x"]
    (note,) = rule_notes(layers, recipe("int8", "*dense_1*=float32"))
    assert note == ("--layer '*dense_1*=float32' fits dense/x too, by the names of their tensors")
    assert rule_notes(layers, recipe("int8", "dense_1/*=float32")) == ()


def test_four_bits_for_layers_without_such_weights_are_refused():
    with fails(UsageError):
        ruled_layers(LAYERS, recipe("int8", "ADD=int4"))


def test_integer_activations_in_a_recipe_of_float_ones_are_refused():
    with fails(UsageError):
        ruled_layers(LAYERS, recipe("dynamic", "ADD=int16x8"))


def test_the_bits_of_weights_follow_the_recipe_and_its_rules():
    four = recipe("int8x4", "*dense_1*=int8")
    assert weight_bits(LAYERS, four, ruled_layers(LAYERS, four)) == {FIRST: 4}
    eight = recipe("int8", "*dense_1*=int4")
    assert weight_bits(LAYERS, eight, ruled_layers(LAYERS, eight)) == {SECOND: 4}
    assert weight_bits(LAYERS, recipe("int8"), {}) == {}


def layer(name: str, weights: int, operator: str = "CONV_2D") -> FloatLayer:
    return FloatLayer(
        name, operator, (name,), weights, can_have_four_bits=weights > 0, compressible=weights
    )


def file_bytes(layers: list[FloatLayer], overhead: int = 0) -> int:
    """The size of a float file with these layers."""
    return 4 * sum(each.compressible for each in layers) + overhead


def test_a_4_bit_recipe_keeps_the_first_the_last_and_depthwise_layers_at_8_bits():
    layers = [
        layer("first", 400),
        layer("depthwise", 500, "DEPTHWISE_CONV_2D"),
        layer("light", 300),
        layer("heavy", 100_000),
        layer("last", 600),
        layer("relu", 0, "RELU"),
    ]
    # 2 % of 50,900 bytes leave room for 2,036 weights: for all but one of these.
    assert kept_layers(layers, recipe("int8x4"), file_bytes(layers)) == (
        *("first", "depthwise", "light", "last"),
    )
    heavier = [layers[0], layers[1]._replace(weights=900, compressible=900), *layers[2:]]
    assert kept_layers(heavier, recipe("int8x4"), file_bytes(heavier)) == (
        *("first", "depthwise", "last"),
    )


@pytest.mark.parametrize("name", ["int8", "dynamic", "weight-only-int8", "int16x8"])
def test_a_recipe_of_8_bits_has_no_layers_to_keep(name):
    layers = [layer("first", 4), layer("second", 4000)]
    assert kept_layers(layers, recipe(name), file_bytes(layers)) == ()
    assert kept_layers([], recipe("int8x4"), 1000) == ()


def test_what_would_make_the_file_more_than_2_percent_larger_gets_4_bits():
    layers = [layer("first", 1000), layer("second", 2000), layer("last", 1000)]
    assert kept_layers(layers, recipe("int8x4"), file_bytes(layers)) == ()
    # In a large file the same layers weigh less; the heaviest has 4 bits all the same.
    assert kept_layers(layers, recipe("int8x4"), file_bytes(layers, 100_000)) == ("first", "last")


def test_layers_that_are_kept_get_4_bits_by_a_rule_and_the_others_stay_kept():
    layers = [layer("first", 10), layer("second", 4000), layer("last", 10)]
    asked = recipe("int8x4", "first=int4")
    kept = kept_layers(layers, asked, file_bytes(layers))
    assert kept == ("first", "last")
    bits = weight_bits(layers, asked, ruled_layers(layers, asked), kept)
    assert bits == {"first": 4, "second": 4}


def test_the_file_has_4_bits_but_for_what_is_kept():
    graph = CalibratedGraph(two_dense(), feeds(), threads=1)
    done = make_file(graph, recipe("int8x4"), MethodSettings("minmax", ()))
    assert (done.four_bit, done.eight_bit) == (("dense",), ("dense_1[0]",))
    assert types_of_weights(done.model) == {"a": "int4", "b": "int8"}
    undone = make_file(graph, recipe("int8x4", "*=int4"), MethodSettings("minmax", ()))
    assert undone.eight_bit == ()
    assert types_of_weights(undone.model) == {"a": "int4", "b": "int4"}
    assert len(undone.model) < len(done.model) <= 1.02 * len(undone.model)


def types_of_weights(model: bytes) -> dict[str, str]:
    specs = tensor_specs(model, where="the model")
    return {name: specs[f"{name}/w"].dtype for name in "ab"}


@pytest.mark.parametrize(
    ("name", "rules", "expected"),
    [
        ("int8", (), {"a": "int8", "b": "int8"}),
        ("int8", (f"{SECOND}=float32",), {"a": "int8", "b": "float32"}),
        ("int8", (f"{SECOND}=float16",), {"a": "int8", "b": "float16"}),
        ("int8", (f"{SECOND}=int4",), {"a": "int8", "b": "int4"}),
        ("int8x4", (f"{SECOND}=int8",), {"a": "int4", "b": "int8"}),
        ("weight-only-int8", (f"{SECOND}=float32",), {"a": "int8", "b": "float32"}),
        ("weight-only-int4", (f"{SECOND}=int8",), {"a": "int4", "b": "int8"}),
        ("float16", (f"{SECOND}=int8",), {"a": "float16", "b": "int8"}),
        ("float16", (f"{SECOND}=int4",), {"a": "float16", "b": "int4"}),
        ("float16", (f"{SECOND}=float32",), {"a": "float16", "b": "float32"}),
    ],
)
def test_each_layer_has_weights_of_the_precision_asked_for(name, rules, expected):
    assert types_of_weights(made(name, *rules)) == expected


def test_a_layer_of_16_bits_in_an_int8_model_has_its_activations_in_16_bits():
    specs = tensor_specs(made("int8", f"{FIRST}=int16x8"), where="the model")
    assert specs[FIRST].dtype == "int16"
    assert summarize(made("int8", f"{FIRST}=int16x8"), where="it").float_operators == ()
    plain = tensor_specs(made("int8"), where="the model")
    assert plain[FIRST].dtype == "int8"


def test_what_a_rule_leaves_in_float_is_said_with_the_file():
    graph = CalibratedGraph(two_dense(), feeds(), threads=1)
    done = make_file(graph, recipe("int8", "ADD=float32"), MethodSettings("minmax", ()))
    left = read(done.model, where="it")
    assert float_operators(left) == ("ADD",)
    assert float_groups(done.model, done.float_outputs) == ({RULED},)
    # What is left by a rule allows nothing of its kind elsewhere.
    assert float_groups(done.model, ("another",)) == ({"ADD"},)


def test_a_rule_for_the_last_layer_leaves_the_models_output_as_asked():
    (output,) = summarize(made("int8", f"{THIRD}=int16x8"), where="it").signatures[0].outputs
    assert output.dtype == "float32"


def wide_dense() -> bytes:
    """One dense layer of 64 to 32."""
    rng = np.random.default_rng(5)
    graph = Graph()
    x = graph.tensor("x", (1, 64), "float32")
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    w = graph.tensor("w", (32, 64), "float32", data=weights)
    b = graph.tensor("b", (32,), "float32", data=np.zeros(32, np.float32))
    y = graph.computed("y", (1, 32), "FULLY_CONNECTED", [x, w, b])
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


def run_with(data: bytes, resolver: str, rows: np.ndarray) -> np.ndarray:
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=getattr(OpResolverType, resolver)
    )
    runner = interpreter.get_signature_runner()
    return np.concatenate([runner(x=row[None])["y"] for row in rows])


def test_a_dense_layer_of_4_bits_and_float_inputs_is_right_without_the_delegate_too():
    """LiteRT's own kernel takes -8 for something else in rows of 32 inputs or more."""
    rng = np.random.default_rng(6)
    samples = rng.normal(size=(200, 64)).astype(np.float32)
    graph = CalibratedGraph(wide_dense(), {"serving_default": Feed({"x": samples}, 1)}, threads=1)
    asked = recipe("dynamic", "FULLY_CONNECTED=int4")
    data = make_file(graph, asked, MethodSettings("minmax", ("bias-correction", "rounding"))).model
    given = samples[:40]
    on, off = (
        run_with(data, kind, given) for kind in ("AUTO", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
    )
    # Each rounds the inputs its own way.
    assert np.max(np.abs(on - off)) < 0.02 * np.ptp(on)


@pytest.mark.parametrize(("name", "methods"), [("int8", ("rounding",)), ("int8x4", ())])
def test_methods_and_bits_that_a_graph_cannot_have_are_an_error_and_no_plain_file(name, methods):
    model = parse(two_dense(), where="it")
    other = copy.deepcopy(model.signatureDefs[0])
    other.signatureKey = "other"
    model.signatureDefs.append(other)
    both = feeds() | {"other": feeds()["serving_default"]}
    graph = CalibratedGraph(serialize(model), both, threads=1)
    with fails(ToolFailed):
        make_file(graph, recipe(name), MethodSettings("minmax", methods))
