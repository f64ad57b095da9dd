from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed, run

from edgeconv.errors import InputRefused
from edgeconv.tflite import summarize, without_shape_bridges

X = np.array([[1, 2, 3, 4]], np.int8)


def model(*, float_reader: bool = False, float_output: bool = False) -> bytes:
    """SHAPE of a DEQUANTIZE of an int8 input; what else reads the float tensor is asked for."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    bridge = graph.tensor("x_dequant", (1, 4), "float32")
    shape = graph.tensor("shape", (2,), "int32")
    outputs = [shape]
    graph.operator("DEQUANTIZE", [x], [bridge])
    graph.operator("SHAPE", [bridge], [shape])
    graph.operators[-1].builtinOptionsType = schema.BuiltinOptions.ShapeOptions
    graph.operators[-1].builtinOptions = schema.ShapeOptionsT(outType=schema.TensorType.INT32)
    if float_reader:
        outputs.append(graph.tensor("exp", (1, 4), "float32"))
        graph.operator("EXP", [bridge], [outputs[-1]])
    if float_output:
        outputs.append(bridge)
    return packed(graph.model([x], outputs))


def operators(data: bytes) -> list[str]:
    return [operator.name for operator in summarize(data, where="test").operators]


def test_a_dequantize_that_only_leads_to_a_shape_is_taken_out():
    made = without_shape_bridges(model())
    assert operators(made) == ["SHAPE"]
    assert run(made, X)[0].tolist() == [1, 4]


@pytest.mark.parametrize("asked", [{"float_reader": True}, {"float_output": True}])
def test_a_dequantize_whose_values_are_used_stays_and_the_shape_reads_past_it(asked):
    before = model(**asked)
    made = without_shape_bridges(before)
    assert operators(made) == operators(before)
    for one, other in zip(run(made, X), run(before, X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_without_such_a_bridge_comes_back_as_the_very_same_bytes():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    y = graph.tensor("y", (1, 4), "float32")
    graph.operator("DEQUANTIZE", [x], [y])
    data = packed(graph.model([x], [y]))
    assert without_shape_bridges(data) is data


def test_bytes_that_are_no_model_are_refused():
    with pytest.raises(InputRefused):
        without_shape_bridges(b"no model")
