import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed

from edgeconv.model.tflite import oldest_runtime, with_needs_declared
from edgeconv.model.tflite.compatibility import parse_release, releases
from edgeconv.model.tflite.flatbuffer import operator_name, operators_of, parse
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import use_of
from edgeconv.types import OldestRuntime, RuntimeNeed

BUILTINS = {name for name in vars(schema.BuiltinOperator) if name[0] != "_"}
ONE, CHANNELS = 1.0, [1.0, 2.0, 0.5]


def oldest(model: schema.ModelT) -> OldestRuntime:
    return oldest_runtime(packed(model), "tiny")


def one_operator(
    name: str, inputs: list[str], output: str, *, version: int = 1, rank: int = 4, **options
) -> schema.ModelT:
    """One operator on tensors of these types, the quantised ones with a scale of 1."""
    graph = Graph()

    def tensor(index: int, dtype: str) -> int:
        scale = 1.0 if dtype in ("int8", "uint8", "int16", "int4") else None
        return graph.tensor(f"t{index}", (2,) * rank, dtype, scale=scale)

    ends = [tensor(index, dtype) for index, dtype in enumerate(inputs)]
    result = tensor(len(ends), output)
    graph.operator(name, ends, [result], version=version)
    if options:
        kind = options.pop("kind")
        graph.operators[0].builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        graph.operators[0].builtinOptions = getattr(schema, kind + "T")()
        for key, value in options.items():
            setattr(graph.operators[0].builtinOptions, key, value)
    return graph.model([ends[0]] if ends else [], [result])


def dense(activations: str, weight_scale: float | list[float], *, version: int = 1):
    """FULLY_CONNECTED with int8 weights of three channels."""
    graph = Graph()
    is_float = activations == "float32"
    x = graph.tensor("x", (1, 4), activations, scale=None if is_float else 0.5)
    w = graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=weight_scale)
    bias_type = {"float32": np.float32, "int8": np.int32, "int16": np.int64}[activations]
    b = graph.tensor("b", (3,), np.dtype(bias_type).name, data=BIASES.astype(bias_type))
    y = graph.tensor("y", (1, 3), activations, scale=None if is_float else 64.0)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y], version=version)
    return graph.model([x], [y])


def need_of(model: schema.ModelT) -> int | None:
    graph = model.subgraphs[0]
    assert operator_name(model, graph.operators[0]) in BUILTINS
    return needed_version(use_of(model, graph, graph.operators[0]))


def test_the_releases_are_of_operators_that_exist_and_never_go_back():
    table = releases()
    assert {name for name, _ in table} <= BUILTINS
    assert len(table) > 400
    assert table["FULLY_CONNECTED", 12] == (2, 17, 0)
    assert ("BROADCAST_TO", 1) not in table
    assert table["BROADCAST_TO", 2] == (2, 5, 0)
    assert all(
        table[name, version] <= later
        for (name, version), later in ((key, table.get((key[0], key[1] + 1))) for key in table)
        if later is not None
    )
    assert parse_release("2.14.4") == (2, 14, 4)


def test_the_declared_version_sets_the_release():
    found = oldest(dense("float32", ONE, version=9))
    need = RuntimeNeed(operator="FULLY_CONNECTED", version=9, declared=9)
    assert found == OldestRuntime(version="2.3.0", operators=(need,))


def test_a_float_model_runs_almost_anywhere():
    assert oldest(float_model()).version == "1.5.0"


@pytest.mark.parametrize(
    ("activations", "scale", "version", "release", "note"),
    [
        ("float32", ONE, 3, "1.14.0", ""),
        # A runtime before this loads it at version 1, and leaves the weights out.
        ("float32", CHANNELS, 12, "2.17.0", ""),
        ("int8", ONE, 4, "1.14.0", ""),
        ("int8", CHANNELS, 4, "2.10.0", "integer inputs and a scale per channel"),
        ("int16", ONE, 7, "2.3.0", ""),
        ("int16", CHANNELS, 7, "2.10.0", "integer inputs and a scale per channel"),
    ],
)
def test_a_version_too_low_for_the_tensors_does_not_hide_what_they_need(
    activations, scale, version, release, note
):
    need = RuntimeNeed(operator="FULLY_CONNECTED", version=version, declared=1, note=note)
    found = oldest(dense(activations, scale))
    assert found == OldestRuntime(version=release, operators=(need,))


def declared(data: bytes) -> tuple[list[int], list[bytes]]:
    """The versions of the operators in order, and the releases in the metadata."""
    model = parse(data, where="it")
    versions = [
        model.operatorCodes[operator.opcodeIndex].version for _, operator in operators_of(model)
    ]
    found = [e for e in model.metadata or () if e.name == b"min_runtime_version"]
    return versions, [bytes(model.buffers[e.buffer].data) for e in found]


@pytest.mark.parametrize("before", [None, b"1.5.0\0\0\0\0\0\0\0\0\0\0\0", b"2.17.0", "shared"])
def test_a_file_declares_the_versions_and_the_release_that_it_needs(before):
    model = dense("float32", CHANNELS)
    weights = bytes(model.buffers[model.subgraphs[0].tensors[1].buffer].data)
    if before is not None:
        index = model.subgraphs[0].tensors[1].buffer
        if before != "shared":
            model.buffers.append(schema.BufferT(data=np.frombuffer(before, np.uint8)))
            index = len(model.buffers) - 1
        model.metadata = [schema.MetadataT(name="min_runtime_version", buffer=index)]
    data = with_needs_declared(packed(model))
    assert declared(data) == ([12], [b"2.17.0".ljust(16, b"\0")])
    assert oldest_runtime(data, "it").operators[0].declared == 12
    again = parse(data, where="it")
    assert bytes(again.buffers[again.subgraphs[0].tensors[1].buffer].data) == weights
    assert with_needs_declared(data) == data


def test_two_operators_of_one_code_declare_each_what_it_needs():
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "int8", scale=1.0) for name in "xy")
    z, u = (graph.tensor(name, (1, 4), "float32") for name in "zu")
    graph.operator("ADD", [x, x], [y])
    graph.operator("ADD", [z, z], [u])
    assert declared(with_needs_declared(packed(graph.model([x, z], [y, u]))))[0] == [2, 1]


def test_what_is_unknown_keeps_its_version_and_no_release_is_invented():
    model = one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", ["int8", "int8", "int8"], "int8")
    model.buffers.append(schema.BufferT(data=np.frombuffer(b"1.5.0", np.uint8)))
    buffer = len(model.buffers) - 1
    model.metadata = [schema.MetadataT(name="min_runtime_version", buffer=buffer)]
    assert declared(with_needs_declared(packed(model))) == ([1], [])
    # The rule needs version 5, which no runtime has.
    model = one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", ["int16", "int8", "int8"], "int16")
    assert declared(with_needs_declared(packed(model))) == ([1], [])


def test_of_several_operators_the_youngest_sets_it_and_ties_are_all_named():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    y, z, u = (graph.tensor(name, (1, 4), "float32") for name in "yzu")
    graph.operator("GELU", [x], [y])
    graph.operator("BUCKETIZE", [y], [z])
    graph.operator("RELU", [z], [u])
    found = oldest(graph.model([x], [u]))
    assert found.version == "2.8.0"
    assert [need.operator for need in found.operators] == ["BUCKETIZE", "GELU"]
    assert found.unknown == ()


def test_what_no_source_speaks_of_is_unknown_and_the_others_still_count():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    y, z, u = (graph.tensor(name, (1, 4), "float32") for name in "yzu")
    graph.operator("FULLY_CONNECTED", [x], [y], version=99)
    graph.operator("MyOwn", [y], [z], version=3)
    graph.operator("CUMSUM", [z], [u])
    found = oldest(graph.model([x], [u]))
    assert found.version == "2.4.0"
    assert [(need.operator, need.version) for need in found.unknown] == [
        ("FULLY_CONNECTED", 99),
        ("MyOwn", 3),
    ]


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("FULLY_CONNECTED", ["float32", "int4"], "float32"),
        ("CONV_2D", ["float32", "int4"], "float32"),
        ("RESHAPE", ["bfloat16"], "bfloat16"),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", ["int8", "int8", "int8"], "int8"),
    ],
)
def test_types_that_no_rule_speaks_of_make_an_operator_unknown(name, inputs, output):
    found = oldest(one_operator(name, inputs, output))
    assert found.version == ""
    assert found.operators == ()
    assert [need.operator for need in found.unknown] == [name]


def test_a_model_of_no_operators_needs_nothing():
    graph = Graph()
    x = graph.tensor("x", (1,), "float32")
    assert oldest(graph.model([x], [x])) == OldestRuntime(version="")


def test_every_graph_of_a_model_counts():
    model = float_model()
    other = one_operator("CUMSUM", ["float32"], "float32")
    model.subgraphs.append(other.subgraphs[0])
    model.operatorCodes += other.operatorCodes
    model.subgraphs[1].operators[0].opcodeIndex = 1
    assert oldest(model).version == "2.4.0"


FULLY_CONNECTED = {"kind": "FullyConnectedOptions"}
LSTM = {"kind": "UnidirectionalSequenceLSTMOptions"}


@pytest.mark.parametrize(
    ("name", "inputs", "output", "options", "version"),
    [
        ("ADD", ["float32", "float32"], "float32", {}, 1),
        ("ADD", ["int8", "int8"], "int8", {}, 2),
        ("ADD", ["int16"] * 2, "int16", {"kind": "AddOptions", "potScaleInt16": False}, 3),
        ("ADD", ["int64", "int64"], "int64", {}, 4),
        ("AVERAGE_POOL_2D", ["int8"], "int8", {}, 2),
        ("AVERAGE_POOL_2D", ["int16"], "int16", {}, 3),
        ("BATCH_MATMUL", ["int8", "int8"], "int8", {}, 2),
        ("BATCH_MATMUL", ["int16", "int16"], "int16", {}, 3),
        (
            "BATCH_MATMUL",
            ["float32", "int8"],
            "float32",
            {"kind": "BatchMatMulOptions", "asymmetricQuantizeInputs": True},
            4,
        ),
        ("CONCATENATION", ["int8", "int8"], "int8", {}, 2),
        ("CONCATENATION", ["int16", "int16"], "int16", {}, 3),
        ("CONV_2D", ["float32", "float32", "float32"], "float32", {}, 1),
        ("CONV_2D", ["float32", "int8", "float32"], "float32", {}, 2),
        ("CONV_2D", ["int8", "int8", "int32"], "int8", {}, 3),
        ("CONV_2D", ["int16", "int8", "int64"], "int16", {}, 4),
        ("CONV_2D", ["int16", "int8", "int32"], "int16", {}, 8),
        ("CONV_2D", ["int8", "int4", "int32"], "int8", {}, 7),
        ("DEPTHWISE_CONV_2D", ["float32", "int8"], "float32", {}, 4),
        ("DEPTHWISE_CONV_2D", ["int8", "int8"], "int8", {}, 3),
        ("DEPTHWISE_CONV_2D", ["int16", "int8"], "int16", {}, 5),
        (
            "DEPTHWISE_CONV_2D",
            ["float32", "float32"],
            "float32",
            {"kind": "DepthwiseConv2DOptions", "dilationHFactor": 2},
            2,
        ),
        ("DEQUANTIZE", ["int8"], "float32", {}, 2),
        ("DEQUANTIZE", ["float16"], "float32", {}, 3),
        ("DEQUANTIZE", ["int4"], "float32", {}, 6),
        ("FULLY_CONNECTED", ["float32", "float32"], "float32", {}, 6),
        ("FULLY_CONNECTED", ["int8", "int4", "int32"], "int8", {}, 10),
        ("FULLY_CONNECTED", ["int16", "int8", "int32"], "int16", {}, 11),
        (
            "FULLY_CONNECTED",
            ["float32", "int8", "float32"],
            "float32",
            {**FULLY_CONNECTED, "asymmetricQuantizeInputs": True},
            9,
        ),
        (
            "FULLY_CONNECTED",
            ["float32"] * 3,
            "float32",
            {**FULLY_CONNECTED, "keepNumDims": True},
            5,
        ),
        ("GATHER", ["int8", "int32"], "int8", {}, 2),
        ("GATHER", ["float32", "int16"], "float32", {}, 6),
        ("GATHER", ["float32", "int32"], "float32", {"kind": "GatherOptions", "batchDims": 1}, 5),
        ("LOGISTIC", ["int8"], "int8", {}, 2),
        ("LOGISTIC", ["int16"], "int16", {}, 3),
        ("MAX_POOL_2D", ["int8"], "int8", {}, 2),
        ("MEAN", ["int8", "int32"], "int8", {}, 2),
        ("MEAN", ["int16", "int32"], "int16", {}, 3),
        # Scales of 1: their product over the output's is 1, which is the limit.
        ("MUL", ["int8", "int8"], "int8", {}, 3),
        ("MUL", ["int16", "int16"], "int16", {}, 4),
        ("PAD", ["int8", "int32"], "int8", {}, 2),
        ("PAD", ["int16", "int32"], "int16", {}, 3),
        ("QUANTIZE", ["float32"], "int8", {}, 1),
        ("QUANTIZE", ["float32"], "int16", {}, 2),
        ("RESHAPE", ["int8", "int32"], "int8", {}, 1),
        ("RESIZE_BILINEAR", ["int8", "int32"], "int8", {}, 2),
        (
            "RESIZE_BILINEAR",
            ["float32", "int32"],
            "float32",
            {"kind": "ResizeBilinearOptions", "halfPixelCenters": True},
            3,
        ),
        ("RESIZE_BILINEAR", ["int16", "int32"], "int16", {}, 4),
        ("SOFTMAX", ["int8"], "int8", {}, 2),
        ("SOFTMAX", ["int16"], "int16", {}, 3),
        ("STRIDED_SLICE", ["int8", "int32"], "int8", {}, 2),
        (
            "STRIDED_SLICE",
            ["float32", "int32"],
            "float32",
            {"kind": "StridedSliceOptions", "ellipsisMask": 1},
            6,
        ),
        ("SUB", ["int8", "int8"], "int8", {}, 2),
        ("SUB", ["int16"] * 2, "int16", {"kind": "SubOptions", "potScaleInt16": False}, 5),
        ("TANH", ["int16"], "int16", {}, 3),
        ("TRANSPOSE", ["int8", "int32"], "int8", {}, 2),
        ("TRANSPOSE", ["int16", "int32"], "int16", {}, 5),
        ("TRANSPOSE_CONV", ["int32", "int8", "int8"], "int8", {}, 2),
        ("TRANSPOSE_CONV", ["int32", "float32", "float32", "float32"], "float32", {}, 3),
        ("TRANSPOSE_CONV", ["int32", "int8", "int16", "int32"], "int16", {}, 5),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", ["float32", "int8", "int8"], "float32", {}, 2),
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            ["float32", "int8", "int8"],
            "float32",
            {**LSTM, "asymmetricQuantizeInputs": True},
            3,
        ),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", ["int16", "int8", "int8"], "int16", {}, 5),
        ("LSTM", ["float32", "int8", "int8"], "float32", {}, 3),
    ],
)
def test_what_an_operators_tensors_need(name, inputs, output, options, version):
    assert need_of(one_operator(name, inputs, output, **options)) == version


@pytest.mark.parametrize(
    ("name", "rank", "version"),
    [("PAD", 4, 1), ("PAD", 5, 4), ("TRANSPOSE", 5, 4), ("TRANSPOSE", 6, 6), ("SLICE", 5, 5)],
)
def test_more_dimensions_need_a_later_version(name, rank, version):
    assert need_of(one_operator(name, ["float32", "int32"], "float32", rank=rank)) == version


def test_scales_per_channel_of_a_convolution_on_floats_need_a_later_version():
    for name, version in (("CONV_2D", 5), ("DEPTHWISE_CONV_2D", 6)):
        model = one_operator(name, ["float32", "int8"], "float32")
        weights = model.subgraphs[0].tensors[1]
        weights.quantization.scale = np.array([1.0, 2.0], np.float32)
        assert need_of(model) == version


def test_a_grouped_convolution_needs_a_later_version():
    model = one_operator("CONV_2D", ["int8", "int8", "int32"], "int8")
    model.subgraphs[0].tensors[1].shape = np.array([2, 2, 2, 1], np.int32)
    assert need_of(model) == 6


@pytest.mark.parametrize("inputs", [[], ["int8"], ["int16", "int8"]])
def test_no_operator_is_tripped_up_by_inputs_that_are_not_there(inputs):
    for name in sorted(BUILTINS - {"CUSTOM"}):
        nothing = one_operator(name, inputs, "float32")
        nothing.subgraphs[0].operators[0].outputs = []
        for model in (one_operator(name, inputs, "int8", rank=0), nothing):
            found = oldest(model)
            needs = (*found.operators, *found.unknown)
            assert {need.operator for need in needs} == {name}


def test_an_int8_model_says_what_sets_it():
    assert oldest(int8_model()).operators == (
        RuntimeNeed(operator="FULLY_CONNECTED", version=4, declared=4),
    )
