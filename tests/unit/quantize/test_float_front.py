"""Columns of different sizes keep their values where the model itself brings them to one size."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.model.tflite.cut import input_fronts
from edgeconv.model.tflite.flatbuffer import read
from edgeconv.model.tflite.operators import float_groups, float_operators
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.found_rules import with_float_front, with_found_rules
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.rules import unruled_floats
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import LayerRule

# The quantiser asks for this mode itself.
KEY = "serving_default"
LOW, HIGH = np.array([0.0, 0, 1970, 3]), np.array([1.0, 5000, 1990, 8])
PLAIN = MethodSettings("minmax", ())


def table(samples: int, seed: int = 0, kind: str = "float32") -> dict[str, Feed]:
    x = np.random.default_rng(seed).uniform(LOW, HIGH, size=(samples, 4)).astype(kind)
    return {KEY: Feed({"x": x}, 1)}


def regression(
    *, moved: bool = False, scaled: bool = True, uneven: float = 1.0, kind: str = "float32"
) -> bytes:
    """(x - mean) / deviation of an input of a type, perhaps reshaped, and two dense layers."""
    rng = np.random.default_rng(1)
    graph = Graph()
    last = graph.tensor("x", (1, 4), kind, dynamic=True)
    if kind != "float32":
        last = graph.computed("net/cast", (1, 4), "CAST", [last], dynamic=True)
    mean, inverse = (LOW + HIGH) / 2, uneven / (HIGH - LOW)
    if scaled:
        for operator, values in (("SUB", mean), ("MUL", inverse)):
            constant = graph.tensor(
                f"c/{operator}", (1, 4), "float32", data=np.float32(values[None])
            )
            target = graph.tensor(f"net/normalization/{operator}", (1, 4), "float32", dynamic=True)
            graph.operator(operator, [last, constant], [target])
            last = target
    if moved:
        shape = graph.tensor("shape", (2,), "int32", data=np.array([-1, 4], np.int32))
        target = graph.computed("net/flat", (1, 4), "RESHAPE", [last, shape], dynamic=True)
        last = target
    for name, rows, columns in (("first", 16, 4), ("second", 1, 16)):
        weights = rng.normal(size=(rows, columns)).astype(np.float32)
        if not scaled and name == "first":
            weights *= np.float32(inverse)
        target = graph.tensor(f"net/{name}", (1, rows), "float32", dynamic=True)
        stored, bias = graph.tensor(f"w/{name}", weights.shape, "float32", data=weights), -1
        if not scaled and name == "first":
            center = -(weights.astype(np.float64) @ mean)
            bias = graph.tensor("b", (rows,), "float32", data=center.astype(np.float32))
        graph.operator("FULLY_CONNECTED", [last, stored, bias], [target])
        last = target
        if name == "first":
            target = graph.computed("net/relu", (1, rows), "RELU", [last], dynamic=True)
            last = target
    return packed(graph.model([0], [last], signature=(KEY, ["x"], ["y"])))


def recipe(name: str = "int8", **options):
    return make_recipes([name], **options)[0]


@pytest.mark.parametrize("moved", [False, True])
def test_a_front_ends_where_values_are_mixed(moved):
    (front,) = input_fronts(regression(moved=moved))
    assert (front.signature, front.inputs) == (KEY, ("x",))
    assert front.layers == ("net/normalization/SUB", "net/normalization/MUL")


@pytest.mark.parametrize("name", ["CAST", "RESHAPE", "SPLIT"])
def test_an_operator_without_inputs_in_a_broken_file_begins_no_front(name):
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "int64"), graph.tensor("y", (1, 4), "float32")
    graph.operator(name, [], [y])
    assert input_fronts(packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))) == ()


def test_a_model_that_scales_nothing_has_no_front():
    assert input_fronts(regression(scaled=False)) == ()
    graph = Graph()
    x, y = graph.tensor("x", (1, 3), "float32"), graph.tensor("y", (1, 3), "float32")
    graph.operator("ABS", [x], [y])
    assert input_fronts(packed(graph.model([x], [y], signature=(KEY, ["x"], ["y"])))) == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "float32") for name in ("int8", "int16x8", "int8x4")),
        *(("int8", "int64"), ("int8", "float64"), ("int16x8", "float64")),
    ],
)
def test_the_normalization_of_a_table_stays_in_float(name, kind):
    model, fresh = regression(kind=kind), table(200, 9, kind)
    graph = CalibratedGraph(model, table(100, 0, kind), threads=1)
    ruled, (note,) = with_float_front(graph, recipe(name))
    assert [rule.precision for rule in ruled.layers] == ["float32", "float32"]
    assert "'x'" in note
    expected = outputs_of(model, fresh, threads=1)
    plain_db, ruled_db = (
        lowest_snr_db(expected, outputs_of(make_file(graph, each, PLAIN).model, fresh, threads=1))
        for each in (recipe(name), ruled)
    )
    assert plain_db < 25
    assert ruled_db > max(plain_db + 10, 15)
    file = make_file(graph, ruled, PLAIN)
    left = read(file.model, where="it")
    assert set(float_operators(left)) == {"MUL", "SUB"}
    assert unruled_floats(ruled, float_groups(file.model, file.float_outputs)) == ()


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_whole_numbers_are_rounded_and_not_cut_off(kind):
    x = np.arange(256).astype(kind)[:, None]
    (batch,) = Feed({"x": x}, 256).with_steps({"x": 255 / 2**15})
    np.testing.assert_array_equal(batch["x"], x)


def test_what_one_scale_fits_stays_integer():
    x = np.random.default_rng(0).uniform(-1, 1, size=(100, 4)).astype(np.float32)
    even = CalibratedGraph(regression(), {KEY: Feed({"x": x}, 1)}, threads=1)
    assert with_float_front(even, recipe()) == (recipe(), ())
    nothing = CalibratedGraph(regression(scaled=False), table(100), threads=1)
    assert with_float_front(nothing, recipe()) == (recipe(), ())


@pytest.mark.parametrize(
    "options",
    [
        {"name": "dynamic"},
        {"methods": ["none"]},
        {"layers": [LayerRule(pattern="net/normalization/SUB", precision="int16x8")]},
    ],
    ids=["float", "plain", "ruled"],
)
def test_what_the_user_decides_is_left_alone(options):
    asked = recipe(**options)
    assert with_float_front(CalibratedGraph(regression(), table(100), threads=1), asked) == (
        asked,
        (),
    )


def test_an_integer_input_has_a_note_of_what_its_scale_costs():
    asked = recipe(input_type="int8", output_type="int8")
    graph = CalibratedGraph(regression(), table(100), threads=1)
    same, (note,) = with_float_front(graph, asked)
    assert same == asked
    assert "without --io and --full-integer" in note


@pytest.mark.parametrize("name", ["int8", "int16x8"])
def test_a_layer_that_takes_the_table_as_it_is_gets_even_columns(name):
    """As where the normalization was folded into the layer."""
    model, fresh = regression(scaled=False), table(200, seed=9)
    graph = CalibratedGraph(model, table(100), threads=1)
    found = with_found_rules(graph, recipe(name))
    assert found.graph is graph.evened
    expected = outputs_of(model, fresh, threads=1)
    equal_db = lowest_snr_db(expected, outputs_of(found.graph.model, fresh, threads=1))
    assert equal_db > 80
    plain_db, even_db = (
        lowest_snr_db(expected, outputs_of(make_file(graph, each, PLAIN).model, fresh, threads=1))
        for graph, each in ((graph, recipe(name)), (found.graph, found.recipe))
    )
    assert plain_db < 25
    assert even_db > max(plain_db + 10, 15)


def test_columns_of_one_size_need_no_other_graph():
    x = np.random.default_rng(0).uniform(-1, 1, size=(100, 4)).astype(np.float32)
    for feeds, model in (
        ({KEY: Feed({"x": x}, 1)}, regression(scaled=False)),
        (table(100), regression()),
    ):
        graph = CalibratedGraph(model, feeds, threads=1)
        assert graph.evened is None
        assert with_found_rules(graph, recipe()).graph is graph


@pytest.mark.parametrize("name", ["int8", "int16x8"])
@pytest.mark.parametrize("operator", ["CEIL", "FLOOR", "ROUND", "LESS"])
def test_what_jumps_before_any_layer_stays_in_float(operator, name):
    """The fraction of a scaled input, or whether it is less than a threshold, and a dense layer."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    tenth = graph.tensor("c", (1,), "float32", data=np.float32([0.1]))
    scaled, y = (graph.tensor(each, (1, 4), "float32", dynamic=True) for each in ("scaled", "y"))
    graph.operator("MUL", [x, tenth], [scaled])
    kind = "bool" if operator == "LESS" else "float32"
    step = graph.tensor("step", (1, 4), kind, dynamic=True)
    half = graph.tensor("half", (1,), "float32", data=np.float32([0.51]))
    graph.operator(operator, [scaled, half][: 1 + (operator == "LESS")], [step])
    graph.operator(*(("CAST", [step]) if operator == "LESS" else ("SUB", [scaled, step])), [y])
    weights = np.random.default_rng(3).normal(size=(8, 4)).astype(np.float32)
    dense = graph.computed(
        "dense",
        (1, 8),
        "FULLY_CONNECTED",
        [y, graph.tensor("w", (8, 4), "float32", data=weights), -1],
        dynamic=True,
    )
    model = packed(graph.model([x], [dense], signature=(KEY, ["x"], ["y"])))
    fitting, fresh = (
        {KEY: Feed({"x": np.random.default_rng(seed).uniform(-50, 950, (400, 4)).astype("f")}, 1)}
        for seed in (1, 2)
    )
    calibrated = CalibratedGraph(model, fitting, threads=1)
    ruled, notes = with_float_front(calibrated, recipe(name))
    assert len(notes) == 1
    file = make_file(calibrated, ruled, PLAIN)
    left = set(float_operators(read(file.model, where="it")))
    assert left == {"MUL", operator} | (set() if operator == "LESS" else {"SUB"})
    actual, expected = (outputs_of(each, fresh, threads=1) for each in (file.model, model))
    assert lowest_snr_db(expected, actual) > (45 if name == "int16x8" else 30)
    strict = recipe(name, full_integer=True)
    assert with_float_front(calibrated, strict)[0] == strict
