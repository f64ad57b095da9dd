"""The layer at which an error begins."""

import pytest
from tiny_tflite import Graph, packed

from edgeconv.measure.kernels import origin
from edgeconv.model.tflite.cut import graph_of
from edgeconv.types import LayerError

# Two branches, whose operators are in the file one branch after the other, and a dead end.
OPERATORS = (
    ("RELU", ["x"], "first"),
    ("TANH", ["first"], "wrong"),
    ("RELU", ["first"], "right"),
    ("RELU", ["right"], "right_too"),
    ("ADD", ["wrong", "right_too"], "sum"),
    ("TANH", ["right"], "unread"),
    ("RELU", ["sum"], "y"),
)


def begin(**snr_db: float) -> str:
    """The layer at which an error begins; layers that are not named are measured and exact."""
    graph = Graph()
    tensors = {"x": graph.tensor("x", (1, 4), "float32")}
    for name, inputs, output in OPERATORS:
        tensors[output] = graph.tensor(output, (1, 4), "float32")
        graph.operator(name, [tensors[each] for each in inputs], [tensors[output]])
    signature = ("serving_default", ["x"], ["y"])
    data = packed(graph.model([tensors["x"]], [tensors["y"]], signature=signature))
    errors = [
        LayerError(
            layer=name, tensor=name, operator="", samples=9, snr_db=db or 200.0, max_error=0.0
        )
        for _, _, name in OPERATORS
        if (db := snr_db.get(name, 200.0)) is not None
    ]
    found = origin(errors, graph_of(data, None), 20.0)
    return found.layer if found else ""


@pytest.mark.parametrize(
    ("snr_db", "layer"),
    [
        ({}, ""),
        ({"wrong": -2, "sum": 4, "y": 8}, "wrong"),
        ({"first": 10, "wrong": -2, "right": 3, "right_too": 4, "sum": 4, "y": 8}, "first"),
        # What nothing reads is not where the error of the output comes from.
        ({"unread": -9, "sum": 4, "y": 8}, "sum"),
        # An error that ends again, where no other is.
        ({"wrong": 5}, "wrong"),
        # A layer between that is not measured.
        ({"wrong": -2, "sum": None, "y": 8}, "wrong"),
    ],
)
def test_an_error_is_followed_back_to_the_layer_that_makes_it(snr_db, layer):
    assert begin(**snr_db) == layer
