import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from embed_models import float_tiny, published
from tiny_tflite import Graph, int8_model, packed
from wording import fails

from edgeconv import embed
from edgeconv.embedding.micro import MARGIN, _method, arena, resolver_methods, resource_variables
from edgeconv.model.tflite.arena import BUILTIN, arena_bytes
from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.types.errors import UnsupportedOperators

# Every method of MicroMutableOpResolver that adds a builtin operator, as tflite-micro has it in
# micro_mutable_op_resolver.h.
METHODS = """
    AddAbs AddAdd AddAddN AddArgMax AddArgMin AddAssignVariable AddAveragePool2D AddBatchMatMul
    AddBatchToSpaceNd AddBroadcastArgs AddBroadcastTo AddCallOnce AddCast AddCeil AddConcatenation
    AddConv2D AddCos AddCumSum AddDepthToSpace AddDepthwiseConv2D AddDequantize AddDiv
    AddDynamicUpdateSlice AddElu AddEmbeddingLookup AddEqual AddExp AddExpandDims AddFill AddFloor
    AddFloorDiv AddFloorMod AddFullyConnected AddGather AddGatherNd AddGreater AddGreaterEqual
    AddHardSwish AddIf AddL2Normalization AddL2Pool2D AddLeakyRelu AddLess AddLessEqual AddLog
    AddLogSoftmax AddLogicalAnd AddLogicalNot AddLogicalOr AddLogistic AddMaxPool2D AddMaximum
    AddMean AddMinimum AddMirrorPad AddMul AddNeg AddNotEqual AddPack AddPad AddPadV2 AddPrelu
    AddQuantize AddReadVariable AddReduceAll AddReduceMax AddReduceMin AddRelu AddRelu6 AddReshape
    AddResizeBilinear AddResizeNearestNeighbor AddReverseV2 AddRound AddRsqrt AddSelectV2 AddShape
    AddSin AddSlice AddSoftmax AddSpaceToBatchNd AddSpaceToDepth AddSplit AddSplitV AddSqrt
    AddSquare AddSquaredDifference AddSqueeze AddStridedSlice AddSub AddSum AddSvdf AddTanh
    AddTranspose AddTransposeConv AddUnidirectionalSequenceLSTM AddUnpack AddVarHandle AddWhile
    AddZerosLike
"""


def graph_of(*operators: str, dtype: str = "int8"):
    """A model, which nothing could run, with these operators."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), dtype)
    for index, operator in enumerate(operators):
        y = graph.computed(f"y{index}", (1, 4), operator, [x], dtype)
    return parse(packed(graph.model([x], [y])), where="test")


def test_every_operator_has_its_method_and_every_method_its_operator():
    assert sorted(map(_method, BUILTIN)) == sorted(METHODS.split())


def test_the_methods_are_those_of_the_operators_used_each_once():
    model = graph_of("RELU", "CONV_2D", "RELU", "BATCH_MATMUL", "SignalWindow")
    assert resolver_methods(model, "m") == ("AddBatchMatMul", "AddConv2D", "AddRelu", "AddWindow")


def test_operators_that_the_resolver_does_not_have_are_all_named():
    with fails(UnsupportedOperators):
        resolver_methods(graph_of("RELU", "TOPK_V2", "MyOwn", "CONV_3D"), "wake")


def test_a_custom_operator_with_the_name_of_a_builtin_one_is_not_taken_for_it():
    model = graph_of("FlexRelu")
    model.operatorCodes[0].customCode = "RELU"
    with fails(UnsupportedOperators):
        resolver_methods(model, "m")


def test_types_that_no_kernel_takes_are_named():
    with fails(UnsupportedOperators):
        resolver_methods(graph_of("DEQUANTIZE", dtype="float16"), "m")
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int8", data=np.ones((3, 4), np.int8), scale=0.5)
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1])
    model = parse(packed(graph.model([x], [y])), where="test")
    with fails(UnsupportedOperators):
        resolver_methods(model, "m")


@pytest.mark.parametrize(("dtype", "is_taken"), [("int32", False), ("float32", True)])
def test_a_choice_between_indices_is_named(dtype, is_taken):
    graph = Graph()
    chosen = graph.tensor("c", (4,), "bool")
    x, y = graph.tensor("x", (4,), dtype), graph.tensor("y", (4,), dtype)
    graph.operator("SELECT_V2", [chosen, x, x], [y])
    model = parse(packed(graph.model([chosen, x], [y])), where="test")
    if is_taken:
        assert resolver_methods(model, "m") == ("AddSelectV2",)
    else:
        with fails(UnsupportedOperators):
            resolver_methods(model, "m")


@pytest.mark.parametrize("is_open", [True, False])
def test_batches_made_of_an_open_one_are_named(is_open):
    """With the batch stored as 1, its kernel writes two batches into the memory of one."""
    graph = Graph()
    x = graph.tensor("x", (1, 8, 2), "float32", dynamic=is_open)
    block = graph.tensor("block", (1,), "int32", data=np.array([2], np.int32))
    pads = graph.tensor("pads", (1, 2), "int32", data=np.zeros((1, 2), np.int32))
    y = graph.tensor("y", (1 if is_open else 2, 4, 2), "float32", dynamic=is_open)
    graph.operator("SPACE_TO_BATCH_ND", [x, block, pads], [y])
    model = parse(packed(graph.model([x], [y])), where="test")
    if is_open:
        with fails(UnsupportedOperators):
            resolver_methods(model, "m")
    else:
        assert resolver_methods(model, "m") == ("AddSpaceToBatchNd",)


def test_integers_unpacked_with_a_scale_for_each_channel_are_named():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int8", data=np.ones((3, 4), np.int8), scale=[0.5, 1.0, 2.0])
    unpacked = graph.computed("u", (3, 4), "DEQUANTIZE", [w])
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, unpacked, -1])
    model = parse(packed(graph.model([x], [y])), where="test")
    with fails(UnsupportedOperators):
        resolver_methods(model, "m")


def test_an_embedding_of_such_a_model_is_refused_unless_it_is_for_another_runtime(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    y = graph.computed("y", (1, 4), "SIGN", [x])
    signature = ("serving_default", ["x"], ["y"])
    content = packed(graph.model([x], [y], signature=signature))
    file = published(tmp_path / "m", content, recipe="float32")
    for target in ("c", "arduino", "zephyr"):
        with fails(UnsupportedOperators):
            embed(file, target, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    embedded = embed(file, "c", tmp_path / "out", option={"micro": "no"})
    assert not any("micro" in one.path for one in embedded.files)
    assert embedded.notes == ()


def test_the_estimate_of_the_arena_has_the_tensors_and_a_margin():
    data = packed(int8_model())
    need, estimate = arena(data, parse(data, where="test"))
    assert need == arena_bytes(data) == 32
    assert estimate % 16 == 0
    # By hand: to plan 4 tensors more than the 32 of them, 1,536 and 4 tensors, 1 operator, 3
    # channels; and the margin.
    by_hand = (4 * 72 + 1536 + 4 * 32 + 192 + 3 * 8) * (1 + MARGIN)
    assert by_hand <= estimate < by_hand + 17


def test_a_convolution_adds_the_scratch_memory_of_its_columns():
    graph = Graph()
    x = graph.tensor("x", (1, 8, 8, 16), "int8", scale=1.0)
    w = graph.tensor("w", (4, 3, 3, 16), "int8", data=np.ones((4, 3, 3, 16), np.int8), scale=1.0)
    y = graph.computed("y", (1, 8, 8, 4), "CONV_2D", [x, w, -1], "int8", scale=1.0)
    data = packed(graph.model([x], [y]))
    need, estimate = arena(data, parse(data, where="test"))
    kept = 1536 + 3 * 32 + 192 + 4 * 8
    assert estimate >= (need + 2 * 2 * 3 * 3 * 16 + kept) * (1 + MARGIN)


def test_variables_are_counted_by_name():
    assert resource_variables(graph_of("RELU")) == 0
    model = graph_of("VAR_HANDLE", "VAR_HANDLE", "VAR_HANDLE")
    for operator, name in zip(model.subgraphs[0].operators, ("a", "b", "a"), strict=True):
        operator.builtinOptions = schema.VarHandleOptionsT(sharedName=name)
    assert resource_variables(model) == 2


def test_zephyr_and_arduino_have_their_own_files(tmp_path):
    embed(float_tiny(tmp_path / "m"), "zephyr", tmp_path / "z", symbol="wake")
    assert "name: edgeconv_wake" in (tmp_path / "z/zephyr/module.yml").read_text()
    assert "config EDGECONV_WAKE\n" in (tmp_path / "z/Kconfig").read_text()
    assert "CONFIG_EDGECONV_WAKE=y\n" in (tmp_path / "z/samples/self_test/prj.conf").read_text()
    embed(float_tiny(tmp_path / "m"), "arduino", tmp_path / "a", symbol="wake")
    properties = dict(
        line.split("=", 1) for line in (tmp_path / "a/library.properties").read_text().splitlines()
    )
    assert properties["name"] == "wake"
    assert properties["includes"] == "wake.h"
    assert (tmp_path / "a/src/wake.h").is_file()
    assert "wake_micro_self_test" in (tmp_path / "a/examples/SelfTest/SelfTest.ino").read_text()
