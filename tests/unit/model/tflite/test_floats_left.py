"""What computes in float in a file of integers."""

from typing import Any

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import sigmoid_outputs
from edgeconv.model.tflite.layers import floats_left


def mixed() -> bytes:
    """x: QUANTIZE, an int8 FULLY_CONNECTED of 8 × 4, then SIN, ABS and RESHAPE in float."""
    made = Graph()
    x = made.tensor("x", (1, 8), "float32")
    w = made.tensor("w", (4, 8), "int8", data=np.ones((4, 8), np.int8), scale=0.1)
    names = ("open", "model/wave/Sin", "model/size/Abs", "y")
    opened, sine, size, y = (made.tensor(name, (1, 4), "float32") for name in names)
    q = made.computed("q", (1, 8), "QUANTIZE", [x], "int8", scale=0.1)
    dense = made.computed("dense", (1, 4), "FULLY_CONNECTED", [q, w, -1], "int8", scale=0.1)
    made.operator("DEQUANTIZE", [dense], [opened])
    made.operator("SIN", [opened], [sine])
    made.operator("ABS", [sine], [size])
    made.operator("RESHAPE", [size], [y])
    return packed(made.model([x], [y]))


def found(*ruled: str) -> list[tuple[Any, ...]]:
    left = floats_left(mixed(), ruled, "int8")
    return [(each.name, each.count, each.reason) for each in left.operators]


def test_what_has_no_kernel_is_named_first_and_its_neighbors_are_called_so():
    assert found() == [("SIN", 1, "no kernel"), ("ABS", 1, "neighbor"), ("RESHAPE", 1, "neighbor")]
    assert found("model/wave/Sin")[0] == ("SIN", 1, "rule")
    assert floats_left(mixed(), (), "int8").operators[0].layers == ("wave",)


def test_the_share_of_the_work_counts_multiplications_and_values():
    # 32 multiplications of integers, and 3 operators of 4 values in float.
    assert floats_left(mixed(), (), "int8").integer_share == pytest.approx(32 / (32 + 12))


def test_only_outputs_of_a_sigmoid_alone_are_probabilities():
    made = Graph()
    x, p, joined, other = (
        made.tensor(name, (1, 4), "float32") for name in ("x", "p", "joined", "other")
    )
    made.operator("LOGISTIC", [x], [p])
    made.operator("CONCATENATION", [p, p], [joined])
    made.operator("CONCATENATION", [p, x], [other])
    signature = ("serve", ["a"], ["p", "joined", "other"])
    data = packed(made.model([x], [p, joined, other], signature=signature))
    assert sigmoid_outputs(data, "serve") == {"p", "joined"}
    assert sigmoid_outputs(data, "none") == frozenset()
