"""A classifier of one layer, with samples that it is sure of and samples that it is not."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

from edgeconv.quantize.calibrate import Feed

KEY, CLASSES, INPUTS = "serving_default", 4, 64
RNG = np.random.default_rng(0)
PATTERNS = RNG.normal(size=(CLASSES, INPUTS)).astype(np.float32)
PATTERNS[:, 0] = 0
# One that is large and never used makes the others coarse.
WEIGHTS = PATTERNS / 2
WEIGHTS[:, 0] = 5


def classifier(kind: str = "SOFTMAX", *, reshaped: bool = False) -> bytes:
    """One dense layer that knows `PATTERNS`, and SOFTMAX or LOGISTIC."""
    graph = Graph()
    x = graph.tensor("x", (1, INPUTS), "float32", dynamic=True)
    logits = graph.tensor("logits", (1, CLASSES), "float32", dynamic=True)
    weights = graph.tensor("w", PATTERNS.shape, "float32", data=WEIGHTS)
    bias = graph.tensor("b", (CLASSES,), "float32", data=np.zeros(CLASSES, np.float32))
    graph.operator("FULLY_CONNECTED", [x, weights, bias], [logits])
    options = schema.SoftmaxOptionsT(beta=1.0) if kind == "SOFTMAX" else None
    y = graph.computed("y", (1, CLASSES), kind, [logits], dynamic=True, options=options)
    if reshaped:
        shape = graph.tensor("shape", (2,), "int32", data=np.array([-1, CLASSES], np.int32))
        y, flat = graph.tensor("out", (1, CLASSES), "float32", dynamic=True), y
        graph.operator("RESHAPE", [flat, shape], [y])
    return packed(graph.model([x], [y], signature=(KEY, ["x"], ["p"])))


def sure_samples(count: int, seed: int) -> Feed:
    """Patterns with some noise, as those that the network was trained with."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(scale=0.3, size=(count, INPUTS)) * (np.arange(INPUTS) > 0)
    return Feed({"x": (PATTERNS[np.arange(count) % CLASSES] + noise).astype(np.float32)}, 1)


def unsure_samples(count: int, seed: int) -> Feed:
    """Mixtures of two patterns."""
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.35, 0.65, size=(count, 1))
    first, second = (np.arange(count) + k for k in (0, 1))
    mixed = share * PATTERNS[first % CLASSES] + (1 - share) * PATTERNS[second % CLASSES]
    noise = rng.normal(scale=0.3, size=(count, INPUTS)) * (np.arange(INPUTS) > 0)
    return Feed({"x": (mixed + noise).astype(np.float32)}, 1)
