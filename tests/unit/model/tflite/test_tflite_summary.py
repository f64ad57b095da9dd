import math
import random

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import WEIGHTS, Graph, float_model, int8_model, packed, packed_with_weights_outside
from wording import fails

from edgeconv.model.tflite import (
    is_quantized,
    largest_scales,
    output_steps,
    summarize,
    unused_inputs,
)
from edgeconv.model.tflite.operators import float_groups
from edgeconv.types import OperatorCount, Signature, TensorSpec
from edgeconv.types.errors import InputRefused


def summary_of(model: schema.ModelT):
    return summarize(packed(model), where="tiny.tflite")


def test_a_float_model_has_float_operators_and_no_quantised_weights():
    summary = summary_of(float_model(signature=("serving_default", ["a"], ["b"])))
    assert summary.operators == (OperatorCount(name="FULLY_CONNECTED", version=1, count=1),)
    assert summary.float_operators == ("FULLY_CONNECTED",)
    assert summary.weight_bytes == 4 * 12 + 4 * 3
    assert (summary.quantized_weight_share, summary.float16_weight_share) == (0.0, 0.0)
    assert summary.description == "tiny"
    assert not is_quantized(summary)


def test_a_dynamic_dimension_is_minus_one():
    (signature,) = summary_of(float_model(signature=("go", ["a"], ["b"]))).signatures
    assert signature == Signature(
        key="go",
        inputs=(TensorSpec(name="a", shape=(-1, 4), dtype="float32"),),
        outputs=(TensorSpec(name="b", shape=(1, 3), dtype="float32"),),
    )


def test_a_model_without_signatures_shows_its_tensors_under_an_empty_key():
    (signature,) = summary_of(float_model(names=("in:0", "out:0"))).signatures
    assert signature.key == ""
    assert [t.name for t in (*signature.inputs, *signature.outputs)] == ["in:0", "out:0"]


def test_int32_biases_of_a_quantised_model_are_no_weights():
    summary = summary_of(int8_model())
    assert summary.weight_bytes == 12
    assert summary.quantized_weight_share == 1.0
    assert summary.float_operators == ()
    assert is_quantized(summary)


def test_quantised_ends_show_scale_and_zero_point():
    (signature,) = summary_of(int8_model()).signatures
    assert signature.inputs == (
        TensorSpec(name="x", shape=(1, 4), dtype="int8", scale=(0.5,), zero_point=(-3,)),
    )


def test_a_float_tensor_with_leftover_parameters_is_not_quantised():
    model = float_model()
    model.subgraphs[0].tensors[0].quantization = schema.QuantizationParametersT(
        scale=np.array([0.1], np.float32), zeroPoint=np.array([0], np.int64)
    )
    summary = summary_of(model)
    assert summary.signatures[0].inputs[0].scale == ()
    assert not is_quantized(summary)


def constant_model(dtype: str, elements: int, stored: bytes, **quantization) -> schema.ModelT:
    """One float32 [1] input, added to itself, beside a constant of `dtype`."""
    graph = Graph()
    x = graph.tensor("x", (1,), "float32")
    graph.tensor("c", (elements,), dtype, data=np.frombuffer(stored, np.uint8), **quantization)
    graph.tensor("f", (6,), "float32", data=np.zeros(6, np.float32))
    y = graph.computed("y", (1,), "ADD", [x, x])
    return graph.model([x], [y])


@pytest.mark.parametrize(
    ("dtype", "stored_bytes", "quantized_share", "float16_share"),
    [
        ("int8", 9, 0.6, 0.0),
        ("uint8", 9, 0.6, 0.0),
        ("int4", 5, 0.6, 0.0),
        ("int2", 3, 0.6, 0.0),
        ("int16", 18, 0.0, 0.0),
        ("float16", 18, 0.0, 0.6),
        ("bfloat16", 18, 0.0, 0.0),
    ],
)
def test_shares_count_the_float32_bytes_that_weights_stand_for(
    dtype, stored_bytes, quantized_share, float16_share
):
    # 9 elements of the type beside 6 of float32: 0.6 of the weights.
    summary = summary_of(constant_model(dtype, 9, b"\1" * stored_bytes, scale=0.5))
    assert summary.quantized_weight_share == pytest.approx(quantized_share)
    assert summary.float16_weight_share == pytest.approx(float16_share)
    assert summary.weight_bytes == stored_bytes + 24


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_without_a_scale_are_no_weights(dtype):
    size = np.dtype(dtype).itemsize
    summary = summary_of(constant_model(dtype, 3, b"\1" * 3 * size))
    assert summary.weight_bytes == 24
    assert summary.quantized_weight_share == 0.0


def test_a_buffer_that_two_tensors_share_counts_once():
    model = float_model()
    twin = schema.TensorT(name="w2", shape=np.array([3, 4], np.int32), buffer=1)
    model.subgraphs[0].tensors.append(twin)
    assert summary_of(model).weight_bytes == 60


def test_per_channel_weights_are_quantised_weights():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=[0.1, 0.2, 0.3])
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1], version=12)
    summary = summary_of(graph.model([x], [y]))
    assert summary.quantized_weight_share == 1.0
    # A dynamic-range model still computes on float activations.
    assert summary.float_operators == ("FULLY_CONNECTED",)
    assert is_quantized(summary)


def test_blockwise_scales_are_parameters_and_their_weights_quantised():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int4", data=np.zeros(6, np.uint8))
    scales = graph.tensor("scales", (3, 1), "float16", data=np.ones(3, np.float16))
    graph.tensors[w].quantization = schema.QuantizationParametersT(
        detailsType=schema.QuantizationDetails.BlockwiseQuantization,
        details=schema.BlockwiseQuantizationT(scales=scales, zeroPoints=-1, blockSize=4),
    )
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1])
    summary = summary_of(graph.model([x], [y]))
    assert (summary.quantized_weight_share, summary.float16_weight_share) == (1.0, 0.0)
    assert summary.weight_bytes == 6


@pytest.mark.parametrize(("first", "is_weight"), [(0.0, False), (0.5, True)])
def test_zeros_that_a_loop_begins_with_are_no_weights(first, is_weight):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    w = graph.tensor("w", (3, 4), "int8", data=WEIGHTS, scale=[0.1, 0.2, 0.3])
    state = graph.tensor("h", (1, 6), "float32", data=np.full(6, first, np.float32))
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1], version=12)
    graph.computed("z", (1, 6), "WHILE", [state])
    summary = summary_of(graph.model([x], [y]))
    assert summary.quantized_weight_share == pytest.approx(2 / 3 if is_weight else 1.0)


def int8_chain(*steps: str, float_ends: bool = False) -> schema.ModelT:
    """One tensor through `steps`; QUANTIZE and DEQUANTIZE switch between int8 and float32."""
    graph = Graph()
    kind = "float32" if float_ends else "int8"

    def add(name: str) -> int:
        scale = {"scale": 0.5} if kind == "int8" else {}
        return graph.tensor(name, (1, 4), kind, **scale)

    first = last = add("x")
    for number, step in enumerate(steps):
        kind = {"QUANTIZE": "int8", "DEQUANTIZE": "float32"}.get(step, kind)
        made = add(f"t{number}")
        graph.operator(step, [last], [made])
        last = made
    return graph.model([first], [last])


def test_quantize_and_dequantize_at_the_models_ends_are_no_float_operators():
    summary = summary_of(int8_chain("QUANTIZE", "RELU", "DEQUANTIZE", float_ends=True))
    assert summary.float_operators == ()
    assert is_quantized(summary)


def test_a_float_operator_inside_an_integer_graph_is_named_without_its_bridges():
    summary = summary_of(int8_chain("RELU", "DEQUANTIZE", "EXP", "QUANTIZE", "RELU"))
    assert summary.float_operators == ("EXP",)


def test_bridges_that_lead_to_no_operator_are_named_themselves():
    summary = summary_of(int8_chain("RELU", "DEQUANTIZE", "QUANTIZE", "RELU"))
    assert summary.float_operators == ("DEQUANTIZE", "QUANTIZE")


def test_operators_that_give_floats_to_each_other_are_a_group():
    steps = ("RELU", "DEQUANTIZE", "SIN", "MINIMUM", "QUANTIZE", "RELU", "DEQUANTIZE", "EXP")
    model = int8_chain(*steps, "QUANTIZE", "RELU")
    assert {*float_groups(packed(model))} == {frozenset({"SIN", "MINIMUM"}), frozenset({"EXP"})}


def test_the_operators_of_a_loop_are_a_group_with_it():
    graph = Graph()
    x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
    graph.operator("WHILE", [x], [y])
    model = graph.model([x], [y], signature=("serve", ["x"], ["y"]))
    body = Graph()
    a, b = body.tensor("a", (1, 4), "float32"), body.tensor("b", (1, 4), "float32")
    body.operator("QUANTIZE", [a], [b])
    body.operator("DEQUANTIZE", [b], [b])
    inner = body.model([a], [b])
    for operator in inner.subgraphs[0].operators:
        operator.opcodeIndex += len(model.operatorCodes)
    model.subgraphs += inner.subgraphs
    model.operatorCodes += inner.operatorCodes
    assert frozenset({"DEQUANTIZE", "QUANTIZE", "WHILE"}) in float_groups(packed(model))


def test_reading_the_shape_of_a_float_tensor_is_not_computing_on_it():
    model = int8_chain("QUANTIZE", "DEQUANTIZE", float_ends=True)
    graph = Graph()
    graph.tensors, graph.buffers = model.subgraphs[0].tensors, model.buffers
    graph.operators, graph.codes = model.subgraphs[0].operators, model.operatorCodes
    graph.operator("SHAPE", [0], [graph.tensor("shape", (2,), "int32")])
    assert summary_of(model).float_operators == ()


def test_float16_weights_behind_a_dequantize_leave_only_the_real_operator():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    half = graph.tensor("w16", (3, 4), "float16", data=WEIGHTS.astype(np.float16))
    w = graph.computed("w", (3, 4), "DEQUANTIZE", [half])
    y = graph.computed("y", (1, 3), "FULLY_CONNECTED", [x, w, -1])
    summary = summary_of(graph.model([x], [y]))
    assert summary.float_operators == ("FULLY_CONNECTED",)
    assert summary.float16_weight_share == 1.0
    assert not is_quantized(summary)


def test_custom_operators_go_by_their_code():
    summary = summary_of(int8_chain("RELU", "MyFft", "MyFft"))
    assert summary.custom_operators == ("MyFft",)
    assert [(o.name, o.count) for o in summary.operators] == [("MyFft", 2), ("RELU", 1)]


def test_an_operator_at_two_versions_is_counted_at_each():
    model = int8_chain("RELU", "RELU", "RELU")
    model.operatorCodes[1].version = 2
    assert [(o.version, o.count) for o in summary_of(model).operators] == [(1, 2), (2, 1)]


def test_operators_of_every_subgraph_are_counted():
    model = int8_chain("RELU")
    model.subgraphs.append(model.subgraphs[0])
    assert summary_of(model).operators[0].count == 2


def test_names_that_are_no_utf8_are_shown_all_the_same():
    data = packed(float_model(names=("input_name", "y"))).replace(
        b"input_name", b"input\xff\xfeame"
    )
    (signature,) = summarize(data, where="tiny.tflite").signatures
    assert signature.inputs[0].name == "input\ufffd\ufffdame"


def test_output_steps_are_the_scales_behind_the_outputs():
    assert output_steps(packed(int8_model()), "serving_default") == {"y": 64.0}
    model = int8_chain("QUANTIZE", "RELU", "DEQUANTIZE", float_ends=True)
    model.signatureDefs = [
        schema.SignatureDefT(
            signatureKey="go",
            subgraphIndex=0,
            inputs=[],
            outputs=[
                schema.TensorMapT(name="x", tensorIndex=0),
                schema.TensorMapT(name="y", tensorIndex=3),
            ],
        )
    ]
    assert output_steps(packed(model), "go") == {"y": 0.5}


def test_weights_outside_the_flatbuffer_are_counted():
    data = packed_with_weights_outside(int8_model())
    summary = summarize(data, where="tiny.tflite")
    assert (summary.weight_bytes, summary.quantized_weight_share) == (12, 1.0)


def test_weights_cut_off_behind_the_flatbuffer_are_refused():
    data = packed_with_weights_outside(int8_model())
    with fails(InputRefused):
        summarize(data[:-1], where="tiny.tflite")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"TFL3",
        b"\x1c\0\0\0ABCD" + b"\0" * 100,
        b"\xff\xff\xff\x7fTFL3" + b"\0" * 100,
        b"\0" * 4 + b"TFL3" + b"\0" * 100,
    ],
)
def test_bytes_that_are_no_model_are_refused_by_name(data):
    with fails(InputRefused):
        summarize(data, where="tiny.tflite")


def broken(change) -> bytes:
    model = int8_model()
    change(model)
    return packed(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.subgraphs[0].tensors[0], "buffer", 99),
        lambda m: setattr(m.subgraphs[0].tensors[0], "type", 77),
        lambda m: setattr(m.subgraphs[0].operators[0], "opcodeIndex", 5),
        lambda m: setattr(m.subgraphs[0].operators[0], "inputs", [0, 1, 40]),
        lambda m: setattr(m.subgraphs[0].operators[0], "outputs", [-2]),
        lambda m: setattr(m.subgraphs[0], "inputs", [-1]),
        lambda m: setattr(m.signatureDefs[0], "subgraphIndex", 1),
        lambda m: setattr(m.signatureDefs[0].inputs[0], "tensorIndex", 9),
        lambda m: setattr(m.subgraphs[0].tensors[1], "shape", np.array([3, 5], np.int32)),
        lambda m: setattr(m, "subgraphs", []),
        lambda m: setattr(m, "metadata", [schema.MetadataT(name="m", buffer=50)]),
    ],
)
def test_an_index_or_size_out_of_range_is_refused(change):
    with fails(InputRefused):
        summarize(broken(change), where="tiny.tflite")


def test_weights_in_other_files_are_refused():
    data = broken(lambda m: setattr(m.subgraphs[0].tensors[1], "externalBuffer", 1))
    with fails(InputRefused):
        summarize(data, where="tiny.tflite")


def mutants(data: bytes, count: int):
    randomness = random.Random(7)
    for _ in range(count):
        mutant = bytearray(data)
        if randomness.random() < 0.2:
            yield bytes(mutant[: randomness.randrange(len(mutant))])
            continue
        for _ in range(randomness.choice([1, 2, 5, 20])):
            mutant[randomness.randrange(len(mutant))] = randomness.choice([0, 127, 128, 255])
        yield bytes(mutant)


@pytest.mark.parametrize("pack", [packed, packed_with_weights_outside])
def test_no_mutant_raises_anything_but_a_refusal_that_names_the_file(pack):
    refusals = []
    for mutant in mutants(pack(int8_model()), 400):
        try:
            summarize(mutant, where="tiny.tflite")
        except InputRefused as error:
            refusals.append(str(error))
    assert len(refusals) > 100
    assert all(refusal.startswith("tiny.tflite ") for refusal in refusals)


def test_the_largest_scale_of_every_quantised_tensor_is_found():
    model = int8_model()
    model.subgraphs[0].tensors[1].quantization.scale = [0.25, 3e35, 0.5]
    assert largest_scales(packed(model)) == {
        "x": 0.5,
        "w": pytest.approx(3e35),
        "b": 0.5,
        "y": 64.0,
    }
    model.subgraphs[0].tensors[1].quantization.scale = [0.25, math.nan]
    assert largest_scales(packed(model))["w"] == math.inf


def test_an_input_that_no_operator_reads_is_named():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    spare = graph.tensor("spare", (1, 2), "float32")
    y = graph.computed("y", (1, 4), "RELU", [x])
    signature = ("serve", ["x", "spare"], ["y"])
    assert unused_inputs(packed(graph.model([x, spare], [y], signature=signature))) == ("spare",)
    # An input that is an output is used.
    signature = ("serve", ["x", "spare"], ["y", "same"])
    assert unused_inputs(packed(graph.model([x, spare], [y, spare], signature=signature))) == ()
