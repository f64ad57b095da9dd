"""A model of two dense layers, of which rounding hurts the second much more, and samples."""

import numpy as np
from tiny_tflite import Graph, packed

KEY = "serving_default"
RNG = np.random.default_rng(0)
FIRST = RNG.normal(size=(6, 8)).astype(np.float32)
# A weight that hardly matters is far larger than the others, which 4 bits then cannot tell apart.
FIRST[0] *= 0.01
SECOND = (RNG.normal(size=(4, 6)) * 0.3).astype(np.float32)
SECOND[:, 0] = 5.0
SAMPLES = RNG.normal(size=(48, 8)).astype(np.float32)


def two_dense(*, cosine: bool = False) -> bytes:
    """y = B A x, or B |A x|."""
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32", dynamic=True)
    hidden = graph.tensor("net/first;net/Relu", (1, 6), "float32", dynamic=True)
    out = graph.tensor("net/second", (1, 4), "float32", dynamic=True)
    middle = hidden
    if cosine:
        middle = graph.tensor("net/cos", (1, 6), "float32", dynamic=True)
    for source, weights, target in ((x, FIRST, hidden), (middle, SECOND, out)):
        stored = graph.tensor(f"w{target}", weights.shape, "float32", data=weights)
        graph.operator("FULLY_CONNECTED", [source, stored, -1], [target])
        if cosine and target == hidden:
            graph.operator("COS", [hidden], [middle])
    return packed(graph.model([x], [out], signature=(KEY, ["x"], ["y"])))
