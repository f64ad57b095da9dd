"""Small numbers stay exact before a logarithm, and what has no integer kernel stays in float."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

from edgeconv.model.tflite.flatbuffer import read
from edgeconv.model.tflite.operators import RULED, float_groups, float_operators
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.found_rules import magnified, with_found_rules
from edgeconv.quantize.quantize import MethodSettings, make_file, plain_ranges
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.requests.recipes import make_recipes

# The quantizer asks for this mode itself.
KEY, LENGTH, BINS, BANDS = "serving_default", 64, 33, 8
PLAIN = MethodSettings("minmax", ())


class Chain(Graph):
    """Operators one after the other, each named after its output."""

    def after(self, kind: str, name: str, columns: int, *inputs: int) -> int:
        target = self.tensor(name, (1, columns), "float32", dynamic=True)
        self.operator(kind, list(inputs), [target])
        return target

    def dense(self, name: str, weights: np.ndarray, source: int) -> int:
        stored = self.tensor(f"w/{name}", weights.shape, "float32", data=np.float32(weights))
        return self.after("FULLY_CONNECTED", name, len(weights), source, stored, -1)


def log_bands() -> bytes:
    """The logarithm of a spectrum's power in bands, by products with sines and cosines."""
    chain = Chain()
    x = chain.tensor("x", (1, LENGTH), "float32", dynamic=True)
    angles = 2 * np.pi * np.outer(np.arange(BINS), np.arange(LENGTH)) / LENGTH
    parts = [chain.dense(n, f(angles), x) for n, f in (("re", np.cos), ("im", np.sin))]
    squares = [chain.after("SQUARE", f"p{part}", BINS, part) for part in parts]
    power = chain.after("ADD", "power", BINS, *squares)
    bands = np.abs(np.random.default_rng(2).normal(size=(BANDS, BINS)))
    energy = chain.dense("bands", bands, power)
    least = chain.tensor("least", (1,), "float32", data=np.float32([1e-6]))
    logarithm = chain.after("LOG", "log", BANDS, chain.after("ADD", "more", BANDS, energy, least))
    return packed(chain.model([x], [logarithm], signature=(KEY, ["x"], ["y"])))


def tones(seed: int) -> dict[str, Feed]:
    """Loud and quiet tones of each pitch."""
    rng = np.random.default_rng(seed)
    phases = np.outer(rng.uniform(0.05, 1.5, 120), np.arange(LENGTH))
    loudness = 10 ** rng.uniform(-1.5, 0, (120, 1))
    return {KEY: Feed({"x": np.float32(loudness * np.sin(phases))}, 1)}


def waves(operator: str = "SIN") -> bytes:
    """A wave of a dense layer, and a dense layer of that."""
    chain, rng = Chain(), np.random.default_rng(5)
    x = chain.tensor("x", (1, LENGTH), "float32", dynamic=True)
    last = chain.dense("first", rng.normal(size=(16, LENGTH)) * 0.2, x)
    last = chain.after(operator, "wave", 16, last)
    last = chain.dense("second", rng.normal(size=(4, 16)), last)
    return packed(chain.model([x], [last], signature=(KEY, ["x"], ["y"])))


def made(model: bytes, name: str, **options):
    """The file by the rules that are found, its ratio on fresh samples, and the notes."""
    (recipe,) = make_recipes([name], **options)
    graph = CalibratedGraph(model, tones(0), threads=1)
    found = with_found_rules(graph.with_kernels_for(recipe)[0], recipe)
    file = make_file(found.graph, found.recipe, PLAIN)
    expected, actual = (outputs_of(each, tones(1), threads=1) for each in (model, file.model))
    return file, lowest_snr_db(expected, actual), found.notes


def test_powers_are_near_a_logarithm_and_what_has_a_sign_is_before_them():
    graph = CalibratedGraph(log_bands(), tones(0), threads=1)
    ranges = plain_ranges(graph.fitted("minmax", bits=8).ranges)
    (place,) = magnified(graph.model, ranges)
    assert {"log", "more", "bands", "power"} < place.near
    assert place.before == {"re", "im"}
    # One step of 8 bits is enough for a range of one order of magnitude.
    assert magnified(graph.model, dict.fromkeys(ranges, (1.0, 10.0))) == ()


def test_8_bits_have_no_step_for_the_small_powers():
    graph = CalibratedGraph(log_bands(), tones(0), threads=1)
    (recipe,) = make_recipes(["int8"], methods=("none",))
    expected = outputs_of(graph.model, tones(1), threads=1)
    assert (
        lowest_snr_db(
            expected, outputs_of(make_file(graph, recipe, PLAIN).model, tones(1), threads=1)
        )
        < 10
    )


@pytest.mark.parametrize("name", ["int8", "int8x4", "int16x8"])
def test_a_logarithm_of_powers_is_right_by_default(name):
    file, snr_db, notes = made(log_bands(), name)
    assert snr_db > 25
    assert "LOG" in float_operators(read(file.model, where="it"))
    assert float_groups(file.model, file.float_outputs) == ({RULED},)
    # The products of the input, most of the weights, are integers.
    assert {"re", "im"}.isdisjoint(file.float_outputs)
    assert any("'log'" in note for note in notes)


@pytest.mark.parametrize("name", ["int8", "int16x8"])
def test_what_only_a_float_kernel_computes_stays_by_itself_without_a_rule(name):
    file, snr_db, notes = made(waves(), name)
    assert (file.float_outputs, notes) == ((), ())
    assert float_operators(read(file.model, where="it")) == ("SIN",)
    assert snr_db > 20


def test_a_file_of_integer_ends_is_to_be_integer_throughout():
    file, _, notes = made(waves("COS"), "int8", input_type="int8", output_type="int8")
    assert float_groups(file.model, file.float_outputs) == ({"COS"},)
    assert notes == ()


def test_16_bits_are_close_where_lengths_differ_by_magnitudes():
    """Vectors of one length, by the inverse square root of their power."""
    chain, rng = Chain(), np.random.default_rng(5)
    x = chain.tensor("x", (1, LENGTH), "float32", dynamic=True)
    vector = chain.dense("vector", rng.normal(size=(16, LENGTH)) / 8, x)
    power = chain.dense("power", np.ones((16, 16)), chain.after("SQUARE", "p", 16, vector))
    least = chain.tensor("least", (1,), "float32", data=np.float32([1e-2]))
    inverse = chain.after("RSQRT", "inverse", 16, chain.after("ADD", "more", 16, power, least))
    unit = chain.after("MUL", "unit", 16, vector, inverse)
    model = packed(chain.model([x], [unit], signature=(KEY, ["x"], ["y"])))
    _, plain_db, _ = made(model, "int16x8", methods=("none",))
    assert 15 < plain_db < 30
    _, snr_db, notes = made(model, "int16x8")
    assert snr_db > 40
    assert any("'inverse'" in note for note in notes)


@pytest.mark.parametrize("signed", [False, True])
def test_the_normalization_of_a_row_of_a_table_stays_in_float_to_its_end(signed):
    """Columns of different sizes, divided by the root of their mean square, and a dense layer."""
    chain, rng = Chain(), np.random.default_rng(5)
    x = chain.tensor("x", (1, 3), "float32", dynamic=True)
    axis = chain.tensor("axis", (1,), "int32", data=np.int32([1]))
    mean = chain.tensor("mean", (1, 1), "float32", dynamic=True)
    options = schema.ReducerOptionsT(keepDims=True)
    chain.operator("MEAN", [chain.after("SQUARE", "p", 3, x), axis], [mean], options=options)
    inverse = chain.after("RSQRT", "inverse", 1, mean)
    gain = chain.tensor("gain", (1, 3), "float32", data=np.float32([[1, 2, 1]]))
    unit = chain.after("MUL", "unit", 3, x, chain.after("MUL", "factor", 3, inverse, gain))
    shift = chain.tensor("shift", (1, 3), "float32", data=np.float32([[0, 1, 0]]))
    last = chain.dense("dense", rng.normal(size=(16, 3)), chain.after("ADD", "end", 3, unit, shift))
    model = packed(chain.model([x], [last], signature=(KEY, ["x"], ["y"])))

    def table(seed: int) -> dict[str, Feed]:
        values = np.random.default_rng(seed).uniform([18, 0, 10], [80, 1, 70], (200, 3))
        values[:, 1] = 1e4 * values[:, 1] ** 40 - 20 * signed
        return {KEY: Feed({"x": values.astype(np.float32)}, 1)}

    (recipe,) = make_recipes(["int8"])
    graph = CalibratedGraph(model, table(0), threads=1)
    found = with_found_rules(graph, recipe)
    file = make_file(found.graph, found.recipe, PLAIN)
    assert {"inverse", "factor", "unit", "end"} <= set(file.float_outputs)
    assert "dense" not in file.float_outputs
    expected, actual = (outputs_of(each, table(1), threads=1) for each in (model, file.model))
    assert lowest_snr_db(expected, actual) > 30
