"""A state of a large range: what int8 cannot keep, with the recipe that can, by name."""

import signal
from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.cli import run
from edgeconv.conversion.candidate import Candidate
from edgeconv.conversion.output_checks import wide_activation
from edgeconv.model.tflite import inner_ranges
from edgeconv.types import Recipe

FAILED = 4


def with_state(size: float) -> bytes:
    """tanh of what is added to a state: (size x + a x) - size x, a different for each element."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    factor = graph.tensor("factor", (1, 4), "float32", data=np.full((1, 4), size, np.float32))
    each = graph.tensor("each", (1, 4), "float32", data=np.float32([[1.0, 0.31, -0.73, 0.57]]))
    names = ("state", "addend", "next_state", "change", "y")
    state, addend, after, change, y = (
        graph.tensor(name, (1, 4), "float32", dynamic=True) for name in names
    )
    graph.operator("MUL", [x, factor], [state])
    graph.operator("MUL", [x, each], [addend])
    graph.operator("ADD", [state, addend], [after])
    graph.operator("SUB", [after, state], [change])
    graph.operator("TANH", [change], [y])
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


@pytest.fixture
def convert(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    samples = np.random.default_rng(4).uniform(-1.14, 1.14, size=(90, 4)).astype(np.float32)
    np.savez("samples.npz", x=samples)

    def converted(size: float, *arguments: str) -> tuple[int, str]:
        Path("model.tflite").write_bytes(with_state(size))
        words = ["convert", "-q", "model.tflite", "-o", "out", "--calibration", "samples.npz"]
        code = run([*words, "--engine", "litert", *arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return converted


def test_a_refused_int8_names_the_recipe_and_the_state_that_needs_it(convert):
    code, printed = convert(100, "--to", "int8", "--min-snr-db", "20")
    assert code == FAILED, printed
    assert "next: choose int16x8: inside, '" in printed
    assert "state' spans -11" in printed
    assert "which 8 bits represent in steps of 0.89" in printed


def test_the_recipe_that_is_proposed_keeps_the_state(convert):
    code, printed = convert(100, "--to", "int16x8")
    assert code == 0, printed
    assert "choose int16x8" not in printed


def test_an_accepted_int8_that_changes_answers_is_warned_of(convert):
    code, printed = convert(200, "--to", "int8")
    assert code == 0, printed
    assert "poor: " in printed
    assert "closer: int16x8: inside, '" in printed


@pytest.mark.parametrize(("inside", "is_wide"), [(4.0, True), (0.02, False)])
def test_the_only_activation_inside_is_wide_beside_the_input(inside, is_wide, tmp_path):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in ("x", "y"))
    steps = {"quantized_x": 0.01, "state": inside, "quantized_y": 0.1}
    start, state, end = (graph.tensor(n, (1, 4), "int8", scale=s) for n, s in steps.items())
    graph.operator("QUANTIZE", [x], [start])
    graph.operator("RELU", [start], [state])
    graph.operator("TANH", [state], [end])
    graph.operator("DEQUANTIZE", [end], [y])
    file = tmp_path / "int8.tflite"
    file.write_bytes(packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))))
    candidate = Candidate(recipe=Recipe(name="int8"), file=file, engine="litert")
    assert ("'state' spans" in wide_activation(candidate)) == is_wide


def test_a_state_of_an_ordinary_range_is_not_mentioned(convert):
    code, printed = convert(1, "--to", "int8")
    assert code == 0, printed
    assert "int16x8" not in printed


def test_what_is_at_the_ends_is_not_inside(convert):
    assert convert(1, "--to", "int8")[0] == 0
    ranges = inner_ranges(Path("out/model.int8.tflite").read_bytes())
    names = {inner.name for inner in ranges}
    assert {"state", "next_state", "change"} <= names
    assert not any(name.startswith("y") for name in names)
    assert all(inner.is_input == inner.name.startswith("x") for inner in ranges)
