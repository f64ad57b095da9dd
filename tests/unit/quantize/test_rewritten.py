"""Operators without integer kernels become others, or get the kernels that litert-quantizer misses.

Each file runs in LiteRT, and is compared with the float model.
"""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from single_operators import CASES, KEY, ROW, F, of, single
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import summarize
from edgeconv.model.tflite.kernels import COMPARISONS, KERNELS
from edgeconv.model.tflite.layers import floats_left
from edgeconv.model.tflite.operators import float_groups
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import unruled_floats
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.types import LayerRule, Recipe

PLAIN = MethodSettings("minmax", ())
# Of the output's span.
MOST = {"int8": 0.02, "int16x8": 0.004}


def calibrated(name: str) -> CalibratedGraph:
    model, samples = single(name, CASES[name])
    return CalibratedGraph(model, {KEY: Feed(samples, 1)}, threads=1)


@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
@pytest.mark.parametrize("name", CASES)
def test_the_operator_has_integers_and_gives_the_same(name, recipe):
    graph = calibrated(name)
    file = make_file(graph, Recipe(name=recipe, only_integers=True), PLAIN)
    assert summarize(file.model, where="test").float_operators == ()
    expected = outputs_of(graph.model, graph.feeds, threads=1)[KEY, "y"]
    actual = outputs_of(file.model, graph.feeds, threads=1)[KEY, "y"]
    if CASES[name].kind != "float32" or name in ("ROUND", "FLOOR", "CEIL", "SIGN"):
        # Next to a step of the function, integers lie on the other side.
        assert np.mean(np.abs(actual - expected) < 0.1) > 0.9
    else:
        assert np.abs(actual - expected).max() <= MOST[recipe] * np.ptp(expected)


@pytest.mark.parametrize("name", CASES)
def test_the_table_says_which_kernels_are_used(name):
    graph = calibrated(name)
    kernel = KERNELS[name]
    for recipe, takes in (("int8", kernel.int8), ("int16x8", kernel.int16)):
        equal, notes = graph.with_kernels_for(Recipe(name=recipe))
        # A whole number is a scale, and a comparison of floats that are no ids stays one.
        assert (equal is graph) == (takes or name == "ROUND"), recipe
        assert bool(notes) == (equal is not graph)
        assert takes or kernel.instead


def test_recipes_with_float_activations_keep_the_graph():
    graph = calibrated("NEG")
    for name in ("dynamic", "weight-only-int8", "float16"):
        assert graph.with_kernels_for(Recipe(name=name)) == (graph, ())


def test_a_rule_keeps_an_operator_for_its_own_recipe_only():
    graph = calibrated("DIV")
    kept = Recipe(name="int8", layers=(LayerRule(pattern="DIV", precision="float32"),))
    assert graph.with_kernels_for(kept)[0].model == graph.model
    file = make_file(graph, kept, PLAIN)
    assert summarize(file.model, where="test").float_operators == ("DIV",)
    assert file.float_outputs == ("y",)
    file = make_file(graph, Recipe(name="int8"), PLAIN)
    assert summarize(file.model, where="test").float_operators == ()


@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
def test_an_output_that_is_compared_too_has_floats(recipe):
    """A probability, and whether it is more than a half."""
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("LOGISTIC", [x], [y])
    half = graph.tensor("half", (1,), "float32", data=np.float32([0.5]))
    label, number = graph.tensor("label", (1, 4), "bool"), graph.tensor("n", (1, 4), "int64")
    graph.operator("GREATER", [y, half], [label])
    graph.operator("CAST", [label], [number])
    model = packed(graph.model([x], [y, number], signature=(KEY, ["x"], ["y", "label"])))
    feeds = {KEY: Feed({"x": np.random.default_rng(0).normal(size=(30, 4)).astype(F)}, 1)}
    file = make_file(CalibratedGraph(model, feeds, threads=1), Recipe(name=recipe), PLAIN)
    expected, actual = (outputs_of(each, feeds, threads=1) for each in (model, file.model))
    np.testing.assert_allclose(actual[KEY, "y"], expected[KEY, "y"], atol=0.02)
    specs = summarize(file.model, where="test").signatures[0].outputs
    assert [(each.name, each.dtype) for each in specs] == [("y", "float32"), ("label", "int64")]


def test_a_rule_for_an_operator_that_becomes_part_of_another_is_kept_by_what_is_left():
    graph = Graph()
    x, last = graph.tensor("x", (1, 4), "float32"), graph.tensor("last", (1, 4), "float32")
    negated = graph.computed("negated", (1, 4), "NEG", [x])
    graph.operator("ADD", [negated, x], [last], options=schema.AddOptionsT())
    model = packed(graph.model([x], [last], signature=(KEY, ["x"], ["y"])))
    samples = np.random.default_rng(0).normal(size=(30, 4)).astype(F)
    made = CalibratedGraph(model, {KEY: Feed({"x": samples}, 1)}, threads=1)
    rules = tuple(LayerRule(pattern=each, precision="int16x8") for each in ("negated", "last"))
    file = make_file(made, Recipe(name="int8", layers=rules), PLAIN)
    kinds = {each.name for each in summarize(file.model, where="test").operators}
    assert "SUB" in kinds
    assert "NEG" not in kinds


@pytest.mark.parametrize("name", ["FLOOR_DIV", "FLOOR_MOD"])
@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
def test_what_jumps_stays_in_float_where_floats_may_be(name, recipe):
    case = of(ROW, np.float32(3), low=-15, high=15)
    model, samples = single(name, case)
    graph = CalibratedGraph(model, {KEY: Feed(samples, 1)}, threads=1)
    file = make_file(graph, Recipe(name=recipe), PLAIN)
    assert summarize(file.model, where="test").float_operators == (name,)
    assert lowest_snr_db(*(outputs_of(m, graph.feeds, threads=1) for m in (model, file.model))) > 60
    (left,) = floats_left(file.model, (), "int8" if recipe == "int8" else "int16").operators
    assert (left.name, left.reason) == (name, "no kernel")
    file = make_file(graph, Recipe(name=recipe, only_integers=True), PLAIN)
    assert summarize(file.model, where="test").float_operators == ()


@pytest.mark.parametrize("name", sorted(COMPARISONS))
@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
def test_what_a_model_compares_with_its_input_is_the_input_that_it_was_given(name, recipe):
    graph = calibrated(name)
    asked = Recipe(name=recipe)
    file = make_file(graph, asked, PLAIN)
    expected, actual = (
        outputs_of(model, graph.feeds, threads=1)[KEY, "y"] for model in (graph.model, file.model)
    )
    assert (actual == expected).all()
    # No other engine is tried for it.
    assert unruled_floats(asked, float_groups(file.model)) == ()
    (left,) = floats_left(file.model, (), "int8" if recipe == "int8" else "int16").operators
    assert (left.reason, left.count) == ("rule", 1)


@pytest.mark.parametrize("recipe", ["int8", "int16x8", "int8x4", "dynamic", "weight-only-int8"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_product_with_a_constant_of_three_dimensions_is_right(is_first, recipe):
    """Scales by channel gave 0 everywhere, and a constant at the left a file that does not run."""
    random, graph = np.random.default_rng(0), Graph()
    x = graph.tensor("x", (3, 16, 8), "float32")
    shape = (3, 16, 16) if is_first else (3, 8, 16)
    values = random.normal(size=shape).astype(np.float32)
    constant = graph.tensor("constant", shape, "float32", data=values)
    y = graph.tensor("y", (3, 16, shape[2] if not is_first else 8), "float32")
    graph.operator("BATCH_MATMUL", [constant, x] if is_first else [x, constant], [y])
    operator = graph.operators[-1]
    operator.builtinOptions = schema.BatchMatMulOptionsT()
    operator.builtinOptionsType = schema.BuiltinOptions.BatchMatMulOptions
    floating = packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))
    samples = random.normal(size=(60, 16, 8)).astype(np.float32)
    calibrated_graph = CalibratedGraph(floating, {KEY: Feed({"x": samples}, 3)}, threads=1)
    file = make_file(calibrated_graph, Recipe(name=recipe), PLAIN)
    expected, actual = (
        outputs_of(model, calibrated_graph.feeds, threads=1) for model in (floating, file.model)
    )
    assert lowest_snr_db(expected, actual) > (38 if recipe == "int16x8" else 30)


@pytest.mark.parametrize("recipe", ["int8", "int16x8"])
def test_a_normalization_of_one_value_is_its_offset(recipe):
    """Of values far from the others' scale, SQUARED_DIFFERENCE in int8 ended the process."""
    graph, shape = Graph(), (1, 12, 1)
    x, y = (graph.tensor(name, shape, "float32") for name in "xy")
    constants = {"epsilon": 1e-6, "gain": 3.0, "offset": 0.5}
    values = {
        name: graph.tensor(name, (1, 1, 1), "float32", data=np.full((1, 1, 1), value, F))
        for name, value in constants.items()
    }

    def computed(name: str, *inputs: int) -> int:
        options = {"ADD": schema.AddOptionsT, "MUL": schema.MulOptionsT}.get(name)
        made = options() if options else None
        return graph.computed(f"{name} of {inputs}", shape, name, inputs, options=made)

    deviation = computed("ADD", computed("SQUARED_DIFFERENCE", x, x), values["epsilon"])
    factor = computed("MUL", computed("RSQRT", deviation), values["gain"])
    shift = computed("ADD", computed("MUL", computed("NEG", x), factor), values["offset"])
    normalized = computed("ADD", computed("MUL", x, factor), shift)
    graph.operator("ADD", [normalized, x], [y], options=schema.AddOptionsT())
    floating = packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))
    samples = np.random.default_rng(0).normal(size=(30, 12, 1)).astype(F)
    calibrated_graph = CalibratedGraph(floating, {KEY: Feed({"x": samples}, 1)}, threads=1)
    file = make_file(calibrated_graph, Recipe(name=recipe, only_integers=True), PLAIN)
    counts = {each.name: each.count for each in summarize(file.model, where="test").operators}
    assert counts == {"ADD": 1, "DEQUANTIZE": 1, "QUANTIZE": 1}
    actual = outputs_of(file.model, calibrated_graph.feeds, threads=1)[KEY, "y"]
    assert np.abs(actual - (samples + 0.5)).max() < 0.03
