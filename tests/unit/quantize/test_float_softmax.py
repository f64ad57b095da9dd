"""A softmax that is too coarse stays in float; the file has the error as predicted."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed
from wording import says

from edgeconv.model.tflite import softmax_classes, summarize
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.choose import _parts
from edgeconv.quantize.found_rules import with_float_softmax, with_found_rules
from edgeconv.quantize.held_back import HeldBackTrials
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import LayerRule

# The quantiser asks for this mode itself.
KEY, INPUTS = "serving_default", 32
PLAIN = MethodSettings("minmax", ())


def classifier(classes: int, *sizes: float) -> bytes:
    """An output for each size of the weights: small ones make all classes about as likely."""
    graph = Graph()
    x = graph.tensor("x", (1, INPUTS), "float32", dynamic=True)
    outputs = []
    for size in sizes or (1.0,):
        values = size * np.random.default_rng(0).normal(size=(classes, INPUTS))
        weights = graph.tensor("w", values.shape, "float32", data=values.astype(np.float32))
        logits = graph.tensor(f"logits{size:g}", (1, classes), "float32", dynamic=True)
        y = graph.tensor(f"p{size:g}", (1, classes), "float32", dynamic=True)
        graph.operator("FULLY_CONNECTED", [x, weights, -1], [logits])
        graph.operator("SOFTMAX", [logits], [y], options=schema.SoftmaxOptionsT(beta=1.0))
        outputs.append(y)
    names = [f"y{place}" for place, _ in enumerate(outputs)]
    return packed(graph.model([x], outputs, signature=(KEY, ["x"], names)))


def feeds(samples: int, seed: int = 1) -> dict[str, Feed]:
    x = np.random.default_rng(seed).normal(size=(samples, INPUTS)).astype(np.float32)
    return {KEY: Feed({"x": x}, 1)}


def calibrated(classes: int, *sizes: float, samples: int = 60) -> CalibratedGraph:
    return CalibratedGraph(classifier(classes, *sizes), feeds(samples), threads=1)


def recipe(name: str = "int16x8", **options):
    return make_recipes([name], **options)[0]


def test_a_softmax_has_the_classes_of_its_last_dimension():
    assert softmax_classes(classifier(100)) == {"p1": 100}


@pytest.mark.parametrize(
    ("name", "classes", "size", "samples"),
    [
        ("int16x8", 1000, 1.0, 60),
        ("int8", 1000, 0.01, 60),
        ("int8", 1000, 0.2, 20),
        ("int8", 10, 0.01, 20),
        ("int8x4", 100, 0.05, 60),
    ],
)
def test_one_that_is_too_coarse_stays_in_float_and_is_closer(name, classes, size, samples):
    graph, fresh = calibrated(classes, size, samples=samples), feeds(60, seed=5)
    expected = outputs_of(graph.model, fresh, threads=1)
    ruled, (note,) = with_float_softmax(graph, recipe(name))
    assert [rule.precision for rule in ruled.layers] == ["float32"]
    assert note.startswith(f"'p{size:g}' stays in float: ")
    files = [make_file(graph, each, PLAIN).model for each in (recipe(name), ruled)]
    before_db, after_db = (
        lowest_snr_db(expected, outputs_of(file, fresh, threads=1)) for file in files
    )
    assert after_db > before_db + 6
    assert summarize(files[1], where="it").float_operators == ("SOFTMAX",)


def test_of_two_outputs_the_one_whose_classes_are_about_as_likely_stays_in_float():
    ruled, _ = with_float_softmax(calibrated(10, 0.01, 1.0), recipe("int8"))
    assert ruled.layers == (LayerRule(pattern="p0.01", precision="float32"),)


@pytest.mark.parametrize("options", [{"full_integer": True}, {"output_type": "int8"}])
def test_where_all_is_to_be_integers_a_note_says_what_that_costs(options):
    asked = recipe("int8", **options)
    ruled, (note,) = with_float_softmax(calibrated(1000, 0.01), asked)
    assert ruled == asked
    says(note)


@pytest.mark.parametrize("name", ["int16x8", "int8"])
def test_samples_of_one_answer_do_not_show_what_a_softmax_costs(name):
    x = np.zeros((20, INPUTS), np.float32)
    graph = CalibratedGraph(classifier(1000), {KEY: Feed({"x": x}, 1)}, threads=1)
    ruled, (note,) = with_float_softmax(graph, recipe(name))
    assert [rule.precision for rule in ruled.layers] == ["float32"]
    says(note)


def test_the_error_that_is_predicted_is_that_of_the_real_kernels():
    graph, fresh = calibrated(1000), feeds(60, seed=5)
    found = with_found_rules(graph, recipe())
    assert found.graph is graph
    folds = graph.folds(*_parts(graph.feeds))
    predicted_db = HeldBackTrials(folds).errors(found.recipe, PLAIN).snr_db
    plain = make_file(graph, found.recipe, PLAIN).model
    expected = outputs_of(graph.model, fresh, threads=1)
    assert abs(lowest_snr_db(expected, outputs_of(plain, fresh, threads=1)) - predicted_db) < 2


@pytest.mark.parametrize(
    ("classes", "size", "options"),
    [
        (10, 1.0, {}),
        (100, 1.0, {}),
        (1000, 1.0, {"name": "int8"}),
        (10, 1.0, {"name": "int8x4"}),
        (1000, 1.0, {"methods": ["none"]}),
        (1000, 1.0, {"layers": [LayerRule(pattern="SOFTMAX", precision="int16x8")]}),
        (1000, 0.01, {"name": "dynamic"}),
    ],
)
def test_what_loses_nothing_or_is_decided_stays(classes, size, options):
    asked = recipe(**options)
    assert with_float_softmax(calibrated(classes, size), asked) == (asked, ())
