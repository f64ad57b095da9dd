"""A model of two dense layers and a scaling."""

import numpy as np
from tiny_tflite import Graph, packed

FIRST, SECOND, THIRD = "net/dense/MatMul;net/dense/Relu", "net/dense_1[0]/MatMul", "net/scale"


def two_dense() -> bytes:
    """Two dense layers of 8 to 6 to 4, and a scaling by one number each."""
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32", dynamic=True)
    hidden = graph.tensor(FIRST, (1, 6), "float32", dynamic=True)
    out = graph.tensor(SECOND, (1, 4), "float32", dynamic=True)
    for name, target, source, shape in (("a", hidden, x, (6, 8)), ("b", out, hidden, (4, 6))):
        weights = graph.tensor(
            f"{name}/w", shape, "float32", data=rng.normal(size=shape).astype(np.float32)
        )
        bias = graph.tensor(
            f"{name}/b", shape[:1], "float32", data=rng.normal(size=shape[0]).astype(np.float32)
        )
        graph.operator("FULLY_CONNECTED", [source, weights, bias], [target])
    factors = graph.tensor("c", (1, 4), "float32", data=np.ones((1, 4), np.float32))
    scaled = graph.computed(THIRD, (1, 4), "ADD", [out, factors], dynamic=True)
    return packed(graph.model([x], [scaled], signature=("serving_default", ["x"], ["y"])))
