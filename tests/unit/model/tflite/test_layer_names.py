"""The short names of layers, from names of tensors as converters write them."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import float_layers, with_unique_names
from edgeconv.model.tflite.flatbuffer import parse
from edgeconv.model.tflite.layer_names import short_names

CALL = "StatefulPartitionedCall:0"


def model(*operators: tuple[str, str], weights: str = "") -> bytes:
    """Operators one after the other, each with the name of its output; the last has `weights`."""
    graph = Graph()
    last = first = graph.tensor("x", (1, 4), "float32", dynamic=True)
    constant = graph.tensor(weights, (4, 4), "float32", data=np.ones((4, 4), np.float32))
    for operator, name in operators:
        output = graph.tensor(name, (1, 4), "float32", dynamic=True)
        graph.operator(operator, [last, constant] if weights else [last], [output])
        last = output
    return packed(graph.model([first], [last], signature=("serving_default", ["x"], ["y"])))


def names(*operators: tuple[str, str], weights: str = "") -> list[str]:
    return [layer.short_name for layer in float_layers(model(*operators, weights=weights))]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        pytest.param(
            (
                ("CONV_2D", "model/conv2d/Relu;model/conv2d/BiasAdd;model/conv2d/Conv2D"),
                ("CONV_2D", "model/re_lu/Relu6;model/bn/FusedBatchNormV3;model/conv2d_1/Conv2D"),
                ("RESHAPE", "model/flatten/Reshape"),
                ("FULLY_CONNECTED", "model/dense/MatMul1;model/dense/BiasAdd"),
            ),
            ["conv2d", "conv2d_1", "flatten", "dense"],
            id="the layer whose operation the operator computes",
        ),
        pytest.param(
            (
                ("CONV_2D", "StatefulPartitionedCall/model/conv2d_3/Relu;model/conv2d_3/Conv2D"),
                ("SOFTMAX", CALL),
            ),
            ["conv2d_3", "softmax"],
            id="calls of functions are no scopes",
        ),
        pytest.param(
            (
                ("CONV_2D", "sequential_1/conv2d_1/Relu;sequential_1/conv2d_1/convolution"),
                ("MUL", "sequential_1/batch_normalization_1/batchnorm/mul_1"),
                ("CONV_2D", "sequential_1/re_lu_1/Relu6;sequential_1/conv2d_1_2/convolution"),
                ("DEPTHWISE_CONV_2D", "sequential_1/depthwise_conv2d_1/depthwise1"),
                ("FULLY_CONNECTED", "sequential_1/dense_2_1/MatMul"),
            ),
            ["conv2d", "batch_normalization", "conv2d_1", "depthwise_conv2d", "dense_2"],
            id="the second scope that Keras 3 opens",
        ),
        pytest.param(
            (
                (
                    "FULLY_CONNECTED",
                    "functional_2_1/dense_2_1/MatMul;functional_2_1/dense_2_1/Relu",
                ),
                (
                    "FULLY_CONNECTED",
                    "functional_2_1/dense_2_3/MatMul;functional_2_1/dense_2_3/Relu",
                ),
                ("ADD", "functional_2_1/add_1/Add"),
            ),
            ["dense_2/MatMul", "dense_2/MatMul_1", "add"],
            id="a layer that is called twice in Keras 3",
        ),
        pytest.param(
            (
                ("FULLY_CONNECTED", "model_1/dense_4/MatMul"),
                ("FULLY_CONNECTED", "model_1/dense_5/MatMul"),
            ),
            ["dense_4", "dense_5"],
            id="a second model of Keras 2 in one process",
        ),
        pytest.param(
            (
                ("CONV_2D", "model/left/act/Relu;model/left/conv/Conv2D"),
                ("CONV_2D", "model/right/act/Relu;model/right/conv/Conv2D"),
                ("ADD", "model/join/add"),
            ),
            ["left/conv", "right/conv", "join"],
            id="layers of the same name in nested models",
        ),
        pytest.param(
            (
                ("FULLY_CONNECTED", "model/scores/MatMul;model/scores/BiasAdd"),
                ("SOFTMAX", "model/scores/Softmax"),
                ("ADD", "model/add/add"),
                ("MUL", "model/norm/mul_1"),
                ("ADD", "model/norm/add"),
            ),
            ["scores", "scores/Softmax", "add", "norm/mul_1", "norm/add"],
            id="several operators of one layer",
        ),
        pytest.param(
            (
                ("DEPTHWISE_CONV_2D", "m/separable_conv2d/separable_conv2d/depthwise1"),
                ("CONV_2D", "m/separable_conv2d/Relu;m/separable_conv2d/separable_conv2d"),
                ("FULLY_CONNECTED", "m/dense/Tensordot/MatMul1"),
                ("RESHAPE", "m/dense/Tensordot"),
            ),
            ["separable_conv2d/depthwise1", "separable_conv2d/Relu", "dense", "dense/Tensordot"],
            id="functions of several operations",
        ),
        pytest.param(
            (("FULLY_CONNECTED", "MatMul;add"), ("RELU", "Relu"), ("RELU", "Relu_1")),
            ["MatMul", "Relu", "Relu_1"],
            id="a module without scopes",
        ),
        pytest.param((("ADD", "a"), ("ADD", "ADD")), ["a", "ADD"], id="an operator's name"),
        pytest.param((("ADD", "a/b"), ("ADD", "b")), ["a/b", "b"], id="another tensor's name"),
        pytest.param((("RELU", "//"), ("RELU", ";;")), ["relu", "relu_1"], id="empty names"),
    ],
)
def test_a_layer_has_the_name_of_its_keras_layer(operators, expected):
    assert names(*operators) == expected


def test_a_layer_that_is_the_models_output_is_named_after_its_weights():
    assert names(("FULLY_CONNECTED", CALL), weights="model/logits/MatMul") == ["logits"]


def test_short_names_are_unique_and_those_of_a_quantized_file_are_the_same():
    plain = (
        ("CONV_2D", "model/conv/Relu;model/conv/Conv2D"),
        ("RESHAPE", "model/flatten/Reshape"),
        ("FULLY_CONNECTED", "model/dense/MatMul"),
    )
    quantized = (
        ("QUANTIZE", "x_quantized"),
        *plain[:2],
        ("FULLY_CONNECTED", "model/dense/MatMul_quantized"),
        ("DEQUANTIZE", "model/dense/MatMul"),
    )
    assert names(*plain) == ["conv", "flatten", "dense"]
    found = short_names(parse(model(*quantized), where="it"))
    expected = ["quantize", "conv", "flatten", "dense", "dequantize"]
    assert found == {name: short for (_, name), short in zip(quantized, expected, strict=True)}


def test_tensors_without_a_name_or_of_the_same_one_get_their_own():
    nameless = model(("RELU", ""), ("ADD", ""), ("ADD", "y"), ("RELU", "y"), weights="")
    assert [layer.short_name for layer in float_layers(with_unique_names(nameless))] == [
        "relu",
        "add",
        "y",
        "y_2",
    ]
    good = model(("RELU", "a"), ("ADD", "b"), weights="w")
    assert with_unique_names(good) is good


def test_a_name_of_many_scopes_is_cut_and_does_not_take_long():
    hostile = "/".join(["a"] * 50_000)
    (name,) = names(("RELU", hostile))
    assert name == "a"
    assert len(set(names(*(("RELU", f"{hostile}/{i}") for i in range(30))))) == 30
