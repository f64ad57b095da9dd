import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed, run

from edgeconv.model.tflite import summarize, with_integer_kernels

X = np.array([[1, 2, 3, 4]], np.int8)


def model(*, float_reader: bool = False, float_output: bool = False) -> bytes:
    """SHAPE of a DEQUANTIZE of an int8 input; what else reads the float tensor is asked for."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    shape = graph.tensor("shape", (2,), "int32")
    outputs = [shape]
    bridge = graph.computed("x_dequant", (1, 4), "DEQUANTIZE", [x])
    graph.operator(
        "SHAPE", [bridge], [shape], options=schema.ShapeOptionsT(outType=schema.TensorType.INT32)
    )
    if float_reader:
        outputs.append(graph.tensor("exp", (1, 4), "float32"))
        graph.operator("EXP", [bridge], [outputs[-1]])
    if float_output:
        outputs.append(bridge)
    return packed(graph.model([x], outputs))


def operators(data: bytes) -> list[str]:
    return [operator.name for operator in summarize(data, where="test").operators]


def test_a_dequantize_that_only_leads_to_a_shape_is_taken_out():
    made = with_integer_kernels(model())
    assert operators(made) == ["SHAPE"]
    assert run(made, X)[0].tolist() == [1, 4]


@pytest.mark.parametrize("asked", [{"float_reader": True}, {"float_output": True}])
def test_a_dequantize_whose_values_are_used_stays_and_the_shape_reads_past_it(asked):
    before = model(**asked)
    made = with_integer_kernels(before)
    assert operators(made) == operators(before)
    for one, other in zip(run(made, X), run(before, X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_without_such_a_bridge_comes_back_as_the_very_same_bytes():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    y = graph.computed("y", (1, 4), "DEQUANTIZE", [x])
    data = packed(graph.model([x], [y]))
    assert with_integer_kernels(data) is data


SHAPES = {
    "BATCH_TO_SPACE_ND": ((4, 2, 2, 2), (1, 4, 4, 2)),
    "DEPTH_TO_SPACE": ((1, 2, 2, 4), (1, 4, 4, 1)),
    "EXPAND_DIMS": ((1, 4, 2), (1, 1, 4, 2)),
    "REDUCE_MAX": ((1, 4, 2), (1, 2)),
    "REDUCE_MIN": ((1, 4, 2), (1, 2)),
    "SPACE_TO_BATCH_ND": ((1, 3, 4, 2), (4, 2, 2, 2)),
    "SQUEEZE": ((1, 4, 1, 2), (1, 4, 2)),
}


def moving(name: str, kind: str, scale: float, zero_point: int) -> tuple[bytes, np.ndarray]:
    """An operator in float between integers; its output has another scale. And an input."""
    graph, (shape, moved) = Graph(), SHAPES[name]
    x = graph.tensor("x", shape, kind, scale=0.5, zero_point=zero_point)
    before = graph.computed("before", shape, "DEQUANTIZE", [x])
    after = graph.computed("after", moved, name, [before, *_parameters(graph, name)])
    operator = graph.operators[-1]
    if name == "DEPTH_TO_SPACE":
        operator.builtinOptionsType = schema.BuiltinOptions.DepthToSpaceOptions
        operator.builtinOptions = schema.DepthToSpaceOptionsT(blockSize=2)
    if name == "SQUEEZE":
        operator.builtinOptionsType = schema.BuiltinOptions.SqueezeOptions
        operator.builtinOptions = schema.SqueezeOptionsT(squeezeDims=[2])
    if name.startswith("REDUCE"):
        operator.builtinOptionsType = schema.BuiltinOptions.ReducerOptions
        operator.builtinOptions = schema.ReducerOptionsT(keepDims=False)
    y = graph.computed("y", moved, "QUANTIZE", [after], kind, scale=scale, zero_point=zero_point)
    z = graph.computed("z", moved, "DEQUANTIZE", [y])
    values = np.random.default_rng(1).integers(-50, 50, shape).astype(kind)
    return packed(graph.model([x], [z])), values


def _parameters(graph: Graph, name: str) -> list[int]:
    if name.endswith("_ND"):
        padding = [[1, 0], [0, 0]] if name.startswith("SPACE") else [[0, 0], [0, 0]]
        return [
            graph.tensor("block", (2,), "int32", data=np.array([2, 2], np.int32)),
            graph.tensor("edges", (2, 2), "int32", data=np.array(padding, np.int32)),
        ]
    if name == "EXPAND_DIMS":
        return [graph.tensor("axis", (), "int32", data=np.int32(1))]
    if name.startswith("REDUCE"):
        return [graph.tensor("axis", (1,), "int32", data=np.array([1], np.int32))]
    return []


@pytest.mark.parametrize("scale", [0.5, 0.25])
@pytest.mark.parametrize(("kind", "zero_point"), [("int8", 3), ("int16", 0)])
@pytest.mark.parametrize("name", SHAPES)
def test_what_only_moves_values_moves_integers_and_gives_the_same(name, kind, zero_point, scale):
    before, values = moving(name, kind, scale, zero_point)
    after = with_integer_kernels(before)
    np.testing.assert_array_equal(run(after, values)[0], run(before, values)[0])
    # There is no kernel for this one.
    is_float = (name, kind) == ("DEPTH_TO_SPACE", "int16")
    assert summarize(after, where="test").float_operators == ((name,) if is_float else ())
    requantized = [] if scale == 0.5 and not is_float else ["QUANTIZE"]
    bridges = ["DEQUANTIZE", *requantized]
    assert sorted(operators(after)) == sorted([name, *bridges])


def test_operators_after_one_another_move_integers_and_a_float_reader_keeps_its_values():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.5)
    names = ("a", "b", "c", "d")
    shapes = ((1, 4), (1, 1, 4), (1, 1, 1, 4), (1, 1, 1, 4))
    a, b, c, d = (graph.tensor(n, s, "float32") for n, s in zip(names, shapes, strict=True))
    axis = graph.tensor("axis", (), "int32", data=np.int32(1))
    graph.operator("DEQUANTIZE", [x], [a])
    graph.operator("EXPAND_DIMS", [a, axis], [b])
    graph.operator("EXPAND_DIMS", [b, axis], [c])
    graph.operator("EXP", [c], [d])
    y = graph.computed("y", (1, 1, 1, 4), "QUANTIZE", [c], "int8", scale=0.5)
    before = packed(graph.model([x], [d, y]))
    after = with_integer_kernels(before)
    assert summarize(after, where="test").float_operators == ("EXP",)
    for new, old in zip(run(after, X), run(before, X), strict=True):
        np.testing.assert_array_equal(new, old)


def from_floats(*, float_reader: bool) -> bytes:
    """Two EXPAND_DIMS of a float input, which is quantized after them."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    a, b = graph.tensor("a", (1, 1, 4), "float32"), graph.tensor("b", (1, 1, 1, 4), "float32")
    axis = graph.tensor("axis", (), "int32", data=np.int32(1))
    d = graph.tensor("d", (1, 1, 1, 4), "float32")
    graph.operator("EXPAND_DIMS", [x, axis], [a])
    graph.operator("EXPAND_DIMS", [a, axis], [b])
    y = graph.computed("y", (1, 1, 1, 4), "QUANTIZE", [b], "int8", scale=0.25, zero_point=-7)
    if float_reader:
        graph.operator("EXP", [b], [d])
    return packed(graph.model([x], [y, *([d] if float_reader else [])]))


def test_floats_are_quantized_before_they_are_moved():
    values = np.array([[0.1, -0.3, 5, 0.374]], np.float32)
    before = from_floats(float_reader=False)
    after = with_integer_kernels(before)
    assert summarize(after, where="test").float_operators == ()
    np.testing.assert_array_equal(run(after, values)[0], run(before, values)[0])
    kept = from_floats(float_reader=True)
    assert with_integer_kernels(kept) is kept
