"""Files of models in which something is zero in all calibration samples."""

import math

import numpy as np
import pytest
from tiny_tflite import Graph
from unseen_models import KINDS, Arrays, binary, named

from edgeconv.model.tflite.flatbuffer import operators_of, parse
from edgeconv.model.tflite.operators import scales_of, use_of
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.ranges.unseen import widen_unseen
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter

NOT_ASKED = MethodSettings("minmax", ())
# The samples show nothing of the range, so that its guess is several times too wide.
LEAST_DB = {"int8": 12.0, "int16x8": 30.0}


def made(kind: str, recipe_name: str) -> tuple[bytes, tuple[str, ...]]:
    unseen = KINDS[kind]()
    graph = CalibratedGraph(unseen.model, {"serving_default": Feed(unseen.blind, 1)}, threads=1)
    (recipe,) = make_recipes([recipe_name])
    file = make_file(graph, recipe, NOT_ASKED)
    return file.model, file.notes


def answers(model: bytes, arrays: Arrays) -> np.ndarray:
    running = InProcessModel(open_interpreter(model, threads=1), "serving_default")
    return np.concatenate([running.invoke(batch)["y"] for batch in Feed(arrays, 1)])


def snr_db(true: np.ndarray, found: np.ndarray) -> float:
    return 10 * math.log10(np.square(true).sum() / np.square(true - found).sum())


@pytest.mark.parametrize("recipe", LEAST_DB)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_zero_in_calibration_is_right_where_it_is_not(kind, recipe):
    unseen = KINDS[kind]()
    model, notes = made(kind, recipe)
    seen = snr_db(answers(unseen.model, unseen.seeing), answers(model, unseen.seeing))
    assert seen > LEAST_DB[recipe]
    # And it is still zero where it was, up to the rounding of the inputs.
    rest = np.abs(answers(unseen.model, unseen.blind) - answers(model, unseen.blind)).max()
    assert rest < 0.1 * np.abs(answers(unseen.model, unseen.seeing)).max()
    assert any(note.startswith("ranges were widened") for note in notes)


@pytest.mark.parametrize("recipe", LEAST_DB)
@pytest.mark.parametrize("kind", ["difference", "deviation"])
def test_no_sum_is_too_narrow_for_a_microcontroller(kind, recipe):
    """tflite-micro aborts where this is 1 or more."""
    model = parse(made(kind, recipe)[0], where="made")
    shift = {"int8": 20, "int16x8": 15}[recipe]
    sums = [use_of(model, *each) for each in operators_of(model)]
    sums = [use for use in sums if use.name in ("ADD", "SUB")]
    assert sums
    for use in sums:
        twice = 2 * max(scales_of(use.input(0))[0], scales_of(use.input(1))[0])
        assert twice / (2**shift * scales_of(use.output)[0]) < 1


def limits(low: float, high: float) -> dict[str, np.ndarray]:
    return {"min": np.array([[low]], np.float32), "max": np.array([[high]], np.float32)}


def summed(kind: str) -> bytes:
    graph = Graph()
    a, b = (graph.tensor(name, (1, 4), "float32") for name in "ab")
    out = binary(graph, kind, a, b, "out", (1, 4))
    return named(graph, [a, b], out, ["a", "b"])


@pytest.mark.parametrize(
    ("kind", "seen", "low", "high"),
    [
        ("ADD", 0.0, -3.0, 5.0),
        ("SUB", 0.0, -4.0, 4.0),
        ("SUB", 1e-7, -4.0, 4.0),
        ("MUL", 0.0, -4.0, 6.0),
        # More than rounding: the range stays what was measured.
        ("ADD", 0.1, 0.0, 0.1),
        ("SUB", 0.1, 0.0, 0.1),
    ],
)
def test_the_range_is_what_the_inputs_can_give(kind, seen, low, high):
    ranges = {"a": limits(-1, 2), "b": limits(-2, 3), "out": limits(0, seen)}
    wide, names = widen_unseen(summed(kind), ranges, bits=8)
    assert names == (("out",) if seen < 0.1 else ())
    assert float(wide["out"]["min"][0, 0]) == pytest.approx(low)
    assert float(wide["out"]["max"][0, 0]) == pytest.approx(high)
    assert wide["a"] is ranges["a"]
    assert float(ranges["out"]["max"][0, 0]) == pytest.approx(seen)


def test_a_usual_model_keeps_its_ranges():
    unseen = KINDS["difference"]()
    graph = CalibratedGraph(unseen.model, {"serving_default": Feed(unseen.seeing, 1)}, threads=1)
    assert graph.fitted("minmax", bits=8).notes == ()
