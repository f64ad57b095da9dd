"""Tensors that nothing reads or writes are not in the file."""

import numpy as np
from tiny_tflite import Graph, packed, run

from edgeconv.model.tflite import without_unread_tensors
from edgeconv.model.tflite.flatbuffer import read, text


def added(*, twins: int) -> bytes:
    """x + c, with a biasless layer before it, and float twins of what is there."""
    graph = Graph()
    for number in range(twins):
        graph.tensor(f"before_{number}", (1, 4), "float32")
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    weights = graph.tensor("w", (4, 4), "float32", data=np.eye(4, dtype=np.float32))
    middle, y = (graph.tensor(name, (1, 4), "float32", dynamic=True) for name in "my")
    for number in range(twins):
        graph.tensor(f"after_{number}", (1, 4), "float32")
    c = graph.tensor("c", (1, 4), "float32", data=np.arange(4, dtype=np.float32))
    graph.operator("FULLY_CONNECTED", [x, weights, -1], [middle])
    graph.operator("ADD", [middle, c], [y])
    return packed(graph.model([x], [y], signature=("serve", ["x"], ["y"])))


def test_unread_tensors_go_and_the_answers_stay():
    data = added(twins=5)
    less = without_unread_tensors(data)
    assert len(less) < len(data)
    names = {text(tensor.name) for tensor in read(less, where="it").subgraphs[0].tensors}
    assert names == {"x", "w", "m", "y", "c"}
    x = np.ones((1, 4), np.float32)
    np.testing.assert_array_equal(run(less, x)[0], run(data, x)[0])


def test_a_model_without_them_stays_as_it_is():
    data = added(twins=0)
    assert without_unread_tensors(data) == data
