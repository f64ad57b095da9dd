"""Biases beside float16 weights are float16: the values, who reads them, and what stays."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed, run

from edgeconv.model.tflite import with_half_biases
from edgeconv.model.tflite.flatbuffer import operator_name, read, type_names


def two_layers(bias: np.ndarray, *, shares: bool = True, half: bool = True) -> bytes:
    """Two dense layers of 4 units, with one bias or two; weights are float16 where `half`."""
    graph = Graph()
    rng = np.random.default_rng(5)
    last = x = graph.tensor("x", (1, 4), "float32")
    first = graph.tensor("bias", (4,), "float32", data=bias)
    for number in range(2):
        weights = rng.normal(size=(4, 4)).astype(np.float32)
        if half:
            stored = graph.tensor(f"s{number}", (4, 4), "float16", data=weights.astype(np.float16))
            unpacked = graph.computed(f"w{number}", (4, 4), "DEQUANTIZE", [stored], version=3)
        else:
            unpacked = graph.tensor(f"w{number}", (4, 4), "float32", data=weights)
        own = first
        if number and not shares:
            own = graph.tensor("other", (4,), "float32", data=bias + 1)
        y = graph.computed(f"y{number}", (1, 4), "FULLY_CONNECTED", [last, unpacked, own])
        last = y
    return packed(graph.model([x], [last], signature=("serving_default", ["x"], ["y"])))


def stored_types(data: bytes) -> list[str]:
    """The types of all constants."""
    model, names = read(data, where="the test's"), type_names()
    (graph,) = model.subgraphs
    return sorted(
        names[tensor.type].lower()
        for tensor in graph.tensors
        if model.buffers[tensor.buffer].data is not None and len(model.buffers[tensor.buffer].data)
    )


@pytest.mark.parametrize("shares", [True, False])
def test_the_answers_are_those_of_rounded_biases(shares):
    bias = np.array([0.1, -3.7, 60_000.0, 1e-9], np.float32)
    x = np.random.default_rng(1).normal(size=(1, 4)).astype(np.float32)
    data = two_layers(bias, shares=shares)
    halved = with_half_biases(data)
    assert set(stored_types(halved)) == {"float16"}
    assert len(stored_types(halved)) == len(stored_types(data))
    rounded = bias.astype(np.float16).astype(np.float32)
    expected = run(two_layers(rounded, shares=True), x) if shares else run(halved, x)
    np.testing.assert_array_equal(run(halved, x)[0], expected[0])
    np.testing.assert_allclose(run(halved, x)[0], run(data, x)[0], rtol=2e-3, atol=1e-2)
    # The first DEQUANTIZE is of the version that takes float16.
    model = read(halved, where="the test's")
    (graph,) = model.subgraphs
    unpack = [op for op in graph.operators if operator_name(model, op) == "DEQUANTIZE"]
    assert len(unpack) == (3 if shares else 4)
    assert {model.operatorCodes[op.opcodeIndex].version for op in unpack} == {3}
    assert with_half_biases(halved) is halved


def test_biases_that_float16_cannot_hold_stay_and_so_do_float32_layers():
    large = two_layers(np.array([0, 1, 2, 65_600], np.float32))
    assert with_half_biases(large) is large
    floats = two_layers(np.ones(4, np.float32), half=False)
    assert with_half_biases(floats) is floats
