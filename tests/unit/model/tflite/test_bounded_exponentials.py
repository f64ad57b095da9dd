"""Softplus and SELU as the converter writes them, with an EXP that is infinite for 89."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed, run

from edgeconv.model.tflite.flatbuffer import operator_name, read
from edgeconv.model.tflite.rewriting.exponentials import with_bounded_exponentials

SHAPE = (1, 64)
X = np.concatenate([np.linspace(-100, 100, 41), np.linspace(-3, 3, 23)]).astype(np.float32)[None]
MUL, SUB = schema.MulOptionsT(), schema.SubOptionsT()


def names(data: bytes) -> list[str]:
    model = read(data, where="the test's")
    return [operator_name(model, operator) for operator in model.subgraphs[0].operators]


def softplus(*, of_size: bool = False, added: float = 1, turned: bool = False) -> bytes:
    """LOG(EXP(x) + 1) of an open batch; or of -|x|."""
    graph = Graph()
    x, power, more, y = (graph.tensor(name, SHAPE, "float32", dynamic=True) for name in "xpmy")
    one = graph.tensor("one", (), "float32", data=np.float32(added))
    taken = x
    if of_size:
        size, taken = (graph.tensor(name, SHAPE, "float32", dynamic=True) for name in ("s", "t"))
        graph.operator("ABS", [x], [size])
        graph.operator("NEG", [size], [taken])
    graph.operator("EXP", [taken], [power])
    graph.operator("ADD", [one, power] if turned else [power, one], [more])
    graph.operator("LOG", [more], [y])
    return packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))


def selu(*, threshold: float = 0) -> bytes:
    """SELECT_V2(x > 0, 1.05 * x, 1.76 * (EXP(x) - 1)) of an open batch."""
    graph = Graph()
    x, power, less, low, high, y = (
        graph.tensor(name, SHAPE, "float32", dynamic=True) for name in "xplahy"
    )
    one, zero, first, second = (
        graph.tensor(f"c{value}", (), "float32", data=np.float32(value))
        for value in (1.0, threshold, 1.05, 1.76)
    )
    above = graph.computed("above", SHAPE, "GREATER", [x, zero], "bool", dynamic=True)
    graph.operator("MUL", [x, first], [high], options=MUL)
    graph.operator("EXP", [x], [power])
    graph.operator("SUB", [power, one], [less], options=SUB)
    graph.operator("MUL", [less, second], [low], options=MUL)
    graph.operator("SELECT_V2", [above, high, low], [y])
    return packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))


@pytest.mark.parametrize("turned", [False, True])
def test_softplus_of_large_numbers_is_these_numbers(turned):
    bounded = with_bounded_exponentials(softplus(turned=turned))
    assert names(bounded) == ["RELU", "ABS", "LOGISTIC", "LOG", "SUB"]
    exact = np.logaddexp(0, X.astype(np.float64))
    np.testing.assert_allclose(run(bounded, X)[0], exact, rtol=1e-6, atol=2e-7)
    assert with_bounded_exponentials(bounded) == bounded


def test_selu_has_no_exponential_of_what_is_above_0():
    data = selu()
    bounded = with_bounded_exponentials(data)
    assert names(bounded) == ["GREATER", "MUL", "ELU", "MUL", "SELECT_V2"]
    np.testing.assert_allclose(run(bounded, X)[0], run(data, X)[0], rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("data", [softplus(of_size=True), softplus(added=2), selu(threshold=1)])
def test_what_is_bounded_or_something_else_stays(data):
    assert with_bounded_exponentials(data) == data
