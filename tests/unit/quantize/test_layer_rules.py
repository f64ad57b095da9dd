"""Rules for single layers: parsed, held against a graph, and followed by the quantiser."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tiny_tflite import Graph, packed
from two_dense import FIRST, SECOND, THIRD, two_dense

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.recipes import make_recipes
from edgeconv.quantize.rules import parse_rule, ruled_layers, weight_bits
from edgeconv.tflite import float_layers, summarize
from edgeconv.tflite.contents import tensor_specs
from edgeconv.tflite.flatbuffer import parse, serialize
from edgeconv.types import LayerRule

# The quantiser asks for this mode itself.
pytestmark = pytest.mark.filterwarnings("ignore:Warning. Enabling `experimental_preserve")

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv", "not of the form PATTERN=PRECISION"),
        ("=int8", "not of the form PATTERN=PRECISION"),
        ("conv=int9", "unknown precision 'int9'"),
        ("conv=", "unknown precision ''"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
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
    with pytest.raises(UsageError) as caught:
        ruled_layers(LAYERS, asked)
    for part in (SECOND, "'FULLY_CONNECTED=int4'", "'*dense_1*=float32'"):
        assert part in caught.value.message


def test_two_rules_that_agree_are_one():
    asked = recipe("int8", "FULLY_CONNECTED=int4", "*dense_1*=int4")
    assert list(ruled_layers(LAYERS, asked)) == [FIRST, SECOND]


def test_a_pattern_that_no_layer_fits_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="no layer fits the pattern 'FULL_CONNECTED'") as caught:
        ruled_layers(LAYERS, recipe("int8", "FULL_CONNECTED=int4"))
    assert "FULLY_CONNECTED" in caught.value.hint


def test_four_bits_for_layers_without_such_weights_are_refused():
    with pytest.raises(UsageError, match="none of its 1 layers can have weights of 4"):
        ruled_layers(LAYERS, recipe("int8", "ADD=int4"))


def test_integer_activations_in_a_recipe_of_float_ones_are_refused():
    with pytest.raises(UsageError, match="the recipe dynamic has float activations"):
        ruled_layers(LAYERS, recipe("dynamic", "ADD=int16x8"))


def test_the_bits_of_weights_follow_the_recipe_and_its_rules():
    four = recipe("int8x4", "*dense_1*=int8")
    assert weight_bits(LAYERS, four, ruled_layers(LAYERS, four)) == {FIRST: 4}
    eight = recipe("int8", "*dense_1*=int4")
    assert weight_bits(LAYERS, eight, ruled_layers(LAYERS, eight)) == {SECOND: 4}
    assert weight_bits(LAYERS, recipe("int8"), {}) == {}


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
    assert done.float_operators == ("ADD",)
    assert summarize(done.model, where="it").float_operators == ("ADD",)


def test_a_rule_for_the_last_layer_leaves_the_models_output_as_asked():
    (output,) = summarize(made("int8", f"{THIRD}=int16x8"), where="it").signatures[0].outputs
    assert output.dtype == "float32"


def wide_dense() -> bytes:
    """One dense layer of 64 to 32."""
    rng = np.random.default_rng(5)
    graph = Graph()
    x = graph.tensor("x", (1, 64), "float32")
    y = graph.tensor("y", (1, 32), "float32")
    weights = rng.normal(size=(32, 64)).astype(np.float32)
    w = graph.tensor("w", (32, 64), "float32", data=weights)
    b = graph.tensor("b", (32,), "float32", data=np.zeros(32, np.float32))
    graph.operator("FULLY_CONNECTED", [x, w, b], [y])
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
    with pytest.raises(ToolFailed, match="does not apply to a model of several signatures"):
        make_file(graph, recipe(name), MethodSettings("minmax", methods))
