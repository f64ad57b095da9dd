"""The last step of auto: as few layers as make a file close are kept in higher precision."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.choose import MethodSearch
from edgeconv.quantize.quantize import MethodSettings
from edgeconv.quantize.spared import sparings
from edgeconv.requests.recipes import make_recipes

KEY = "serving_default"
PLAIN = MethodSettings("minmax", ())


def graph(*, wide: float = 2000.0) -> CalibratedGraph:
    """Dense layers; in the first, the weights of one feature are `wide` times as large.

    It has 1,024 weights: with fewer it would be in float for its size.
    """
    rng = np.random.default_rng(0)
    made = Graph()
    last = first = made.tensor("x", (1, 16), "float32", dynamic=True)
    shapes = {"front": (64, 16), "hidden": (64, 64), "second": (64, 64), "head": (4, 64)}
    for name, (outputs, inputs) in shapes.items():
        values = (rng.normal(size=(outputs, inputs)) * (2 / inputs) ** 0.5).astype(np.float32)
        if name == "front":
            values[:, 0] *= wide
        weights = made.tensor(f"{name}/w", values.shape, "float32", data=values)
        dense = made.tensor(name, (1, outputs), "float32", dynamic=True)
        made.operator("FULLY_CONNECTED", [last, weights, -1], [dense])
        last = made.computed(f"{name}/tanh", (1, outputs), "TANH", [dense], dynamic=True)
    model = packed(made.model([first], [last], signature=(KEY, ["x"], ["y"])))
    samples = rng.normal(size=(96, 16)).astype(np.float32)
    samples[:, 0] /= wide
    return CalibratedGraph(model, {KEY: Feed({"x": samples}, 8)}, threads=1)


@pytest.mark.parametrize("name", ["dynamic", "weight-only-int8"])
def test_the_one_layer_that_spoils_a_file_stays_in_float(name):
    (recipe,) = make_recipes([name])
    chosen = MethodSearch(graph()).file(recipe)
    assert chosen.record.spared == ("front",)
    assert chosen.record.closeness in ("close", "borderline")
    plain = chosen.record.trials[0]
    assert plain.snr_db < 10
    assert "'front' kept in float" in chosen.notes[0]
    (without,) = make_recipes([name], methods=["none"])
    size = len(MethodSearch(graph()).file(without).file.model)
    assert size < len(chosen.file.model) <= 1.25 * size


def test_nothing_is_spared_where_the_file_is_close_or_methods_are_named():
    for options in ({}, {"methods": ["none"]}):
        (recipe,) = make_recipes(["dynamic"], **options)
        record = MethodSearch(graph(wide=1.0)).file(recipe).record
        assert record is None or record.spared == ()


def test_sixteen_bits_come_before_float_and_float_only_where_it_is_allowed():
    (recipe,) = make_recipes(["int8"])
    (integers,) = make_recipes(["int8"], full_integer=True)
    target_db = 25.0
    free, bound = (
        [each.precision for each in sparings(graph(), r, PLAIN, target_db)]
        for r in (recipe, integers)
    )
    assert set(bound) <= {"int16x8"}
    assert free
    assert free == sorted(free, key=["int16x8", "float32"].index)
