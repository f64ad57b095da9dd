"""Models that come as updates of an embedded one."""

from typing import Any

import numpy as np
from tiny_tflite import BIASES, WEIGHTS, Graph, packed

SIGNED = ("serving_default", ["x"], ["y"])
# The zero point of the input.
POINTS = {"int8": -3, "uint8": 3}


def model(
    dtype: str = "int8",
    *,
    weights: Any = WEIGHTS,
    x: Any = 0.5,
    y: Any = (64.0, 5),
    width: int = 4,
    is_open: bool = False,
    signature: Any = SIGNED,
) -> bytes:
    """y = W x + b with ends of a type, each with a scale and a zero point; None for floats."""
    graph = Graph()
    ends = []
    x = (x, POINTS[dtype]) if isinstance(x, float) else x
    for name, shape, scale in (("x", (1, width), x), ("y", (1, 3), y)):
        facts = {"scale": scale[0], "zero_point": scale[1]} if scale else {}
        kind = dtype if scale else "float32"
        ends.append(graph.tensor(name, shape, kind, dynamic=is_open and name == "x", **facts))
    middle = 128 if dtype == "uint8" else 0
    full = (np.resize(weights, (3, width)).astype(int) + middle).astype(dtype)
    w = graph.tensor("w", (3, width), dtype, data=full, scale=1.0, zero_point=middle)
    b = graph.tensor("b", (3,), "int32", data=BIASES * 2, scale=0.5)
    graph.operator("FULLY_CONNECTED", [ends[0], w, b], [ends[1]], version=4)
    return packed(graph.model([ends[0]], [ends[1]], signature=signature))


def others() -> dict[str, bytes]:
    """By name, models whose interface is not that of `model()`."""
    return {
        "scale": model(x=0.25),
        "zero point": model(y=(64.0, 7)),
        "type": model("uint8"),
        "shape": model(width=8),
        "open batch": model(is_open=True),
        "name": model(signature=("serving_default", ["pixels"], ["y"])),
        "key": model(signature=("other", ["x"], ["y"])),
        "no signature": model(signature=None),
    }
