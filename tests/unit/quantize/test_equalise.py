from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tflite import Graph, packed

from edgeconv.model.tflite.flatbuffer import parse, serialize
from edgeconv.quantize.calibrate import Feed
from edgeconv.quantize.equalization.equalize import (
    MAX_FACTOR,
    EqualizedModel,
    absorb_biases,
    equalize,
    same_outputs,
)
from edgeconv.quantize.equalization.pairs import find_pairs, last_dimension

KEY = "serve"
ACTIVATIONS = schema.ActivationFunctionType
CHANNELS = 3
SIZE = 6


class Net:
    """A float graph made one operator after the other, on an input (1, *shape) called x."""

    def __init__(self, *shape: int) -> None:
        self.graph = Graph()
        self.shape = (1, *shape)
        self.x = self.last = self.graph.tensor("x", self.shape, "float32")
        self.layers: list[list[int]] = []

    def constant(self, values, dtype="float32") -> int:
        data = np.asarray(values, dtype)
        name = f"constant_{len(self.graph.tensors)}"
        return self.graph.tensor(name, data.shape, dtype, data=data)

    def operator(self, name, shape, *constants, options=None, **values) -> Net:
        self.shape = shape
        output = self.graph.tensor(f"t{len(self.graph.tensors)}", shape, "float32")
        self.graph.operator(name, [self.last, *constants], [output])
        if options is not None:
            made = getattr(schema, f"{options}T")()
            for key, value in values.items():
                setattr(made, key, value)
            self.graph.operators[-1].builtinOptions = made
            kind = getattr(schema.BuiltinOptions, options)
            self.graph.operators[-1].builtinOptionsType = kind
        self.last = output
        return self

    def layer(self, name, shape, weights, bias, **options) -> Net:
        constants = [self.constant(weights)]
        if bias is not None:
            constants.append(bias if isinstance(bias, int) else self.constant(bias))
        self.operator(name, shape, *constants, **options)
        self.layers.append(list(self.graph.operators[-1].inputs))
        return self

    def dense(self, weights, bias=None, *, act="RELU") -> Net:
        fused = {"fusedActivationFunction": getattr(ACTIVATIONS, act)}
        shape = (int(np.prod(self.shape)) // weights.shape[1], weights.shape[0])
        name = "FULLY_CONNECTED"
        return self.layer(name, shape, weights, bias, options="FullyConnectedOptions", **fused)

    def conv(self, weights, bias=None, *, act="RELU", padding="VALID", stride=1, dilation=1) -> Net:
        values = _windows(act, padding, stride, dilation)
        shape = (*self.places(weights.shape[1], values), weights.shape[0])
        bias = np.zeros(shape[3]) if bias is None else bias
        return self.layer("CONV_2D", shape, weights, bias, options="Conv2DOptions", **values)

    def depthwise(self, weights, bias=None, *, act="RELU", padding="VALID", stride=1) -> Net:
        values = _windows(act, padding, stride, 1)
        values["depthMultiplier"] = weights.shape[3] // self.shape[3]
        shape = (*self.places(weights.shape[1], values), weights.shape[3])
        options = "DepthwiseConv2DOptions"
        bias = np.zeros(shape[3]) if bias is None else bias
        return self.layer("DEPTHWISE_CONV_2D", shape, weights, bias, options=options, **values)

    def pool(self, name, *, act="NONE") -> Net:
        values = _windows(act, "VALID", 2, None) | {"filterHeight": 2, "filterWidth": 2}
        shape = (*self.places(2, values), self.shape[3])
        return self.operator(name, shape, options="Pool2DOptions", **values)

    def pad(self, last_axis=0) -> Net:
        pads = np.array([[0, 0], [1, 1], [1, 1], [0, last_axis]])
        shape = tuple(int(one) for one in np.add(self.shape, pads.sum(axis=1)))
        return self.operator("PAD", shape, self.constant(pads, "int32"), options="PadOptions")

    def mean(self, *axes: int) -> Net:
        shape = tuple(d for i, d in enumerate(self.shape) if i not in axes)
        return self.operator(
            "MEAN", shape, self.constant(axes, "int32"), options="ReducerOptions", keepDims=False
        )

    def flatten(self) -> Net:
        shape = (1, int(np.prod(self.shape)))
        new = self.constant(shape, "int32")
        return self.operator("RESHAPE", shape, new, options="ReshapeOptions", newShape=shape)

    def same(self, name, *constants, **options) -> Net:
        """An operator that keeps the shape."""
        return self.operator(name, self.shape, *constants, **options)

    def places(self, kernel, values) -> tuple[int, ...]:
        reach = (kernel - 1) * values.get("dilationHFactor", 1) + 1
        reach = 1 if values["padding"] == schema.Padding.SAME else reach
        return (1, *((side - reach) // values["strideH"] + 1 for side in self.shape[1:3]))

    def model(self, outputs: Iterable[int] = ()) -> schema.ModelT:
        ends = [self.last, *outputs]
        signature = (KEY, ["x"], [f"y{i}" for i in range(len(ends))])
        return self.graph.model([self.x], ends, signature=signature)

    def bytes(self, outputs: Iterable[int] = ()) -> bytes:
        return serialize(self.model(outputs))


def _windows(act, padding, stride, dilation) -> dict:
    values = {
        "fusedActivationFunction": getattr(ACTIVATIONS, act),
        "padding": getattr(schema.Padding, padding),
        "strideH": stride,
        "strideW": stride,
    }
    return values | ({"dilationHFactor": dilation, "dilationWFactor": dilation} if dilation else {})


def wild(seed: int, *shape: int, axis: int = 0) -> np.ndarray:
    """Random numbers whose channels along an axis differ up to a thousandfold."""
    rng = np.random.default_rng(seed)
    broad = np.ones(len(shape), int)
    broad[axis] = shape[axis]
    scales = 10 ** rng.uniform(-1.5, 1.5, broad)
    return (rng.normal(size=shape) * scales).astype(np.float32)


def feeds(*shape: int, samples: int = 16, seed: int = 0, low: float = -1.0) -> dict[str, Feed]:
    values = np.random.default_rng(seed).uniform(low, 1, (samples, *shape))
    return {KEY: Feed({"x": values.astype(np.float32)}, 1)}


def outputs(data: bytes, given: dict[str, Feed]) -> list[np.ndarray]:
    """All samples' outputs, one array for each output."""
    from ai_edge_litert.interpreter import Interpreter

    (key,) = given
    runner = Interpreter(model_content=data).get_signature_runner(key)
    answers = [runner(**batch) for batch in given[key]]
    return [np.concatenate([one[name] for one in answers]) for name in sorted(answers[0])]


def assert_same(before: bytes, after: bytes, given: dict[str, Feed]) -> None:
    for old, new in zip(outputs(before, given), outputs(after, given), strict=True):
        assert np.abs(new - old).max() <= 1e-4 * np.abs(old).max()


def constants(data: bytes, subgraph: int = 0) -> list[list[np.ndarray]]:
    """Weights and, where there is one, bias of every layer."""
    model = parse(data, where="the test")
    graph = model.subgraphs[subgraph]
    names = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
    codes = {getattr(schema.BuiltinOperator, name) for name in names}
    found = []
    for operator in graph.operators:
        if model.operatorCodes[operator.opcodeIndex].builtinCode in codes:
            tensors = [graph.tensors[i] for i in operator.inputs[1:] if i != -1]
            raw = [bytes(model.buffers[t.buffer].data) for t in tensors]
            shapes = [tuple(t.shape) for t in tensors]
            pairs = zip(raw, shapes, strict=True)
            found.append([np.frombuffer(r, np.float32).reshape(s) for r, s in pairs])
    return found


def equalise(data: bytes, given: dict[str, Feed] | None = None) -> EqualizedModel:
    shape = parse(data, where="the test").subgraphs[0].tensors[0].shape[1:]
    return equalize(data, feeds(*shape) if given is None else given, threads=1)


def two_dense(seed: int = 1, *, act: str = "RELU", hidden: int = 8) -> Net:
    net = Net(5).dense(wild(seed, hidden, 5), wild(seed + 1, hidden), act=act)
    return net.dense(wild(seed + 2, 4, hidden, axis=1), wild(seed + 3, 4), act="NONE")


def three_convs(seed: int = 1) -> Net:
    """A convolution, a depthwise one and another, as in a MobileNet."""
    net = Net(SIZE, SIZE, 2).conv(wild(seed, 8, 3, 3, 2), wild(seed + 1, 8), padding="SAME")
    net.depthwise(wild(seed + 2, 1, 3, 3, 8, axis=3), wild(seed + 3, 8), padding="SAME")
    return net.conv(wild(seed + 4, 4, 1, 1, 8, axis=3), wild(seed + 5, 4), act="NONE")


# What it does to the weights


def test_each_channel_has_the_same_range_in_both_layers_afterwards():
    data = two_dense().bytes()
    (first, _), (second, _) = constants(data)
    before = np.log(abs(first).max(axis=1) / abs(second).max(axis=0))
    done = equalise(data)
    (first, _), (second, _) = constants(done.model)
    assert abs(before).max() > 1
    np.testing.assert_allclose(abs(first).max(axis=1), abs(second).max(axis=0), rtol=0.005)
    assert len(done.pairs) == 1
    assert done.notes == ()


def test_the_factor_is_the_root_of_the_ratio_of_the_two_ranges():
    first = np.array([[8.0, 0.0], [0.5, -0.25]], np.float32)
    second = np.array([[1.0, -8.0], [-2.0, 3.0]], np.float32)
    net = Net(2).dense(first, np.array([4.0, 1.0])).dense(second, act="NONE")
    (weights, bias), (after,) = constants(equalise(net.bytes(), {}).model)
    # sqrt(8 / 2) and sqrt(0.5 / 8)
    np.testing.assert_allclose(weights, [[4, 0], [2, -1]], rtol=1e-6)
    np.testing.assert_allclose(bias, [2, 4], rtol=1e-6)
    np.testing.assert_allclose(after, [[2, -2], [-4, 0.75]], rtol=1e-6)


def test_three_layers_around_a_depthwise_convolution_are_all_alike():
    data = three_convs().bytes()
    done = equalise(data, {})
    (first, _), (middle, _), (last, _) = constants(done.model)
    ranges = abs(middle).max(axis=(0, 1, 2))
    np.testing.assert_allclose(abs(first).max(axis=(1, 2, 3)), ranges, rtol=0.02)
    np.testing.assert_allclose(abs(last).max(axis=(0, 1, 2)), ranges, rtol=0.02)
    assert len(done.pairs) == 2
    assert_same(data, done.model, feeds(SIZE, SIZE, 2, seed=9))


def test_a_depthwise_convolution_may_make_several_channels_of_each():
    first = np.array([[[[8.0]]], [[[1.0]]]])
    net = Net(SIZE, SIZE, 1).conv(first, act="NONE")
    net.depthwise(np.array([[[[2.0, 1.0, 9.0, -4.0]]]]), act="NONE")
    (first, _), (second, _) = constants(equalise(net.bytes(), {}).model)
    # sqrt(8 / 2) and sqrt(1 / 9)
    np.testing.assert_allclose(first.ravel(), [4, 3], rtol=1e-6)
    np.testing.assert_allclose(second.ravel(), [4, 2, 3, -4 / 3], rtol=1e-6)


def test_the_pairs_are_called_by_their_output_tensors():
    net = two_dense()
    names = [net.graph.tensors[o.outputs[0]].name for o in net.graph.operators]
    assert equalise(net.bytes()).pairs == (f"{names[0]} -> {names[1]}",)


@pytest.mark.parametrize("zeroed", ["first", "second"])
def test_a_dead_channel_stays_as_it_is(zeroed):
    first, second = wild(1, 8, 5), wild(2, 4, 8, axis=1)
    if zeroed == "first":
        first[3] = 0
    else:
        second[:, 3] = 0
    net = Net(5).dense(first, wild(3, 8)).dense(second, act="NONE")
    done = equalise(net.bytes(), {})
    (after, _), (next_after,) = constants(done.model)
    np.testing.assert_array_equal(after[3], first[3])
    np.testing.assert_array_equal(next_after[:, 3], second[:, 3])
    assert done.pairs


def test_a_channel_too_weak_to_count_stays_as_it_is():
    """Weight decay leaves such channels; making up for it would blow up their biases."""
    first = wild(1, 8, 5)
    first[3] *= 1e-3 / MAX_FACTOR**2
    net = Net(5).dense(first, wild(3, 8)).dense(wild(2, 4, 8, axis=1), act="NONE")
    (after, _), _ = constants(equalise(net.bytes(), {}).model)
    np.testing.assert_array_equal(after[3], first[3])
    assert abs(after[2] - first[2]).max() > 0


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_a_second_application_changes_nothing(seed):
    once = equalise(three_convs(seed).bytes())
    assert once.pairs
    twice = equalise(once.model)
    assert twice.model is once.model
    assert twice.notes == ("equalization changes nothing: the weights are alike already",)


def test_equal_models_give_equal_bytes():
    assert equalise(two_dense().bytes()).model == equalise(two_dense().bytes()).model


# What it does to the outputs: nothing

BETWEEN = {
    "RELU": lambda net: net.same("RELU"),
    "LEAKY_RELU": lambda net: net.same("LEAKY_RELU", options="LeakyReluOptions", alpha=0.2),
    "PRELU": lambda net: net.same("PRELU", net.constant(wild(5, 1, 1, net.shape[-1]))),
    "MAX_POOL_2D": lambda net: net.pool("MAX_POOL_2D"),
    "AVERAGE_POOL_2D": lambda net: net.pool("AVERAGE_POOL_2D", act="RELU"),
    "PAD": lambda net: net.pad(),
    "RESIZE_NEAREST_NEIGHBOR": lambda net: net.operator(
        "RESIZE_NEAREST_NEIGHBOR",
        (1, 8, 8, net.shape[3]),
        net.constant([8, 8], "int32"),
        options="ResizeNearestNeighborOptions",
    ),
    "SPACE_TO_BATCH_ND": lambda net: net.operator(
        "SPACE_TO_BATCH_ND",
        (4, (net.shape[1] + 1) // 2, (net.shape[2] + 1) // 2, net.shape[3]),
        net.constant([2, 2], "int32"),
        net.constant([[0, net.shape[1] % 2], [0, net.shape[2] % 2]], "int32"),
        options="SpaceToBatchNDOptions",
    ),
}
HEADS = {
    "dense": lambda net, seed: net.dense(wild(seed, 3, net.shape[-1], axis=1), act="NONE"),
    "flattened": lambda net, seed: net.flatten().dense(
        wild(seed, 3, int(np.prod(net.shape)), axis=1), act="NONE"
    ),
    "mean": lambda net, seed: net.mean(1, 2).dense(
        wild(seed, 3, net.shape[-1], axis=1), act="NONE"
    ),
    "conv": lambda net, seed: net.conv(
        wild(seed, 3, 2, 2, net.shape[-1], axis=3), act="NONE", dilation=2
    ),
    "depthwise": lambda net, seed: net.depthwise(
        wild(seed, 1, 2, 2, 2 * net.shape[-1], axis=3), act="NONE", padding="SAME", stride=2
    ),
}


@given(
    kinds=st.lists(st.sampled_from(["conv", "depthwise"]), min_size=1, max_size=3),
    acts=st.lists(st.sampled_from(["RELU", "NONE"]), min_size=3, max_size=3),
    passed=st.lists(st.sampled_from(sorted(BETWEEN)), max_size=1),
    head=st.sampled_from(sorted(HEADS)),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=120, deadline=None)
def test_the_outputs_of_random_graphs_stay_the_same(kinds, acts, passed, head, seed):
    net = Net(7, 7, CHANNELS)
    for index, (kind, act) in enumerate(zip(kinds, acts, strict=False)):
        inputs, own = net.shape[3], seed + 10 * index
        if kind == "conv":
            net.conv(wild(own, 5, 2, 2, inputs), wild(own + 1, 5), act=act, padding="SAME")
        else:
            weights = wild(own, 1, 3, 3, 2 * inputs, axis=3)
            net.depthwise(weights, wild(own + 1, 2 * inputs), act=act, padding="SAME")
    for name in passed:
        BETWEEN[name](net)
    HEADS[head](net, seed + 7)
    data = net.bytes()
    done = equalise(data, {})
    assert len(done.pairs) == len(kinds)
    assert_same(data, done.model, feeds(7, 7, CHANNELS, samples=4, seed=1))


def test_every_place_of_a_flattened_image_gets_its_channels_factor():
    net = Net(2, 2, 2).conv(np.array([[[[8, 0]]], [[[0, 2]]]], np.float32), act="NONE")
    net.flatten().dense(np.array([[2, 2, 1, 2, 0, 0, -2, 1]], np.float32), act="NONE")
    (first, _), (second,) = constants(equalise(net.bytes(), {}).model)
    np.testing.assert_allclose(first.ravel(), [4, 0, 0, 2], rtol=1e-6)
    np.testing.assert_allclose(second, [[4, 2, 2, 2, 0, 0, -4, 1]], rtol=1e-6)


# Where it does not apply


def untouched(data: bytes, *, why: str, given: dict[str, Feed] | None = None) -> None:
    done = equalise(data, given)
    assert done.model is data
    assert done.pairs == done.absorbed == ()
    (note,) = done.notes
    assert why in note


@pytest.mark.parametrize("act", ["RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"])
def test_a_graph_with_other_activations_everywhere_says_so_and_is_unchanged(act):
    net = two_dense(act=act)
    untouched(
        net.bytes(),
        why=f"equalization does not apply to any of 2 layers: {act} follows (1), "
        "the output is the model's (1)",
        given={},
    )


@pytest.mark.parametrize("name", ["RELU6", "TANH", "HARD_SWISH", "LOGISTIC", "SOFTMAX"])
def test_an_operator_that_is_not_homogeneous_is_named(name):
    net = Net(5).dense(wild(1, 8, 5), act="NONE").same(name)
    untouched(net.dense(wild(2, 4, 8), act="NONE").bytes(), why=f"{name} follows (1)", given={})


def test_a_graph_without_layers_says_so():
    untouched(Net(4).same("RELU").bytes(), why="no convolution and no fully connected layer")


def test_a_tensor_that_two_operators_read_is_left_alone():
    net = Net(5).dense(wild(1, 8, 5))
    shared = net.last
    net.dense(wild(2, 4, 8, axis=1), act="NONE")
    end, net.last = net.last, shared
    net.dense(wild(3, 4, 8, axis=1), act="NONE")
    untouched(net.bytes([end]), why="several operators read the output (1)")


def test_a_reader_of_the_shape_alone_does_not_count():
    net = Net(5).dense(wild(1, 8, 5))
    shape = net.graph.tensor("shape", (2,), "int32")
    net.graph.operator(
        "SHAPE", [net.last], [shape], options=schema.ShapeOptionsT(outType=schema.TensorType.INT32)
    )
    data = net.dense(wild(2, 4, 8, axis=1), act="NONE").bytes([shape])
    done = equalise(data, {})
    assert len(done.pairs) == 1
    assert_same(data, done.model, feeds(5, seed=3))


def test_an_output_of_the_model_is_left_alone():
    net = Net(5).dense(wild(1, 8, 5))
    end = net.last
    untouched(
        net.dense(wild(2, 4, 8), act="NONE").bytes([end]), why="the output is the model's (2)"
    )


def test_weights_that_two_layers_share_are_left_alone():
    net = Net(5).dense(wild(1, 5, 5))
    net.dense(wild(1, 5, 5), act="NONE")
    net.graph.operators[1].inputs[1] = net.graph.operators[0].inputs[1]
    untouched(net.bytes(), why="the weights are shared (2)")


def test_weights_in_one_buffer_are_shared_too():
    net = Net(5).dense(wild(1, 5, 5)).dense(wild(1, 5, 5), act="NONE")
    first, second = (net.graph.tensors[o.inputs[1]] for o in net.graph.operators)
    second.buffer = first.buffer
    untouched(net.bytes(), why="the weights are shared (2)")


def test_a_grouped_convolution_is_left_alone():
    net = Net(SIZE, SIZE, 4).conv(wild(1, 4, 1, 1, 4)).conv(wild(2, 4, 1, 1, 2), act="NONE")
    untouched(net.bytes(), why="in the next layer the convolution is grouped (1)", given={})


def test_a_computed_bias_is_left_alone():
    net = Net(5)
    net.same("RELU")
    computed, net.last = net.last, net.x
    net.dense(wild(1, 5, 5), computed).dense(wild(2, 4, 5), act="NONE")
    untouched(net.bytes(), why="the bias is not stored as float32 (1)", given={})


def test_weights_that_are_not_finite_are_left_alone():
    weights = wild(1, 8, 5)
    weights[2, 2] = np.inf
    net = Net(5).dense(weights).dense(wild(2, 4, 8), act="NONE")
    untouched(net.bytes(), why="the weights are not finite (1)", given={})


def test_padding_of_channels_is_left_alone():
    net = Net(SIZE, SIZE, 2).conv(wild(1, 4, 1, 1, 2)).pad(last_axis=1)
    untouched(net.conv(wild(2, 3, 1, 1, 5), act="NONE").bytes(), why="PAD follows (1)")


def test_a_mean_over_the_channels_is_left_alone():
    net = Net(SIZE, SIZE, 2).conv(wild(1, 4, 1, 1, 2)).mean(1, 3)
    untouched(net.dense(wild(2, 3, SIZE), act="NONE").bytes(), why="MEAN follows (1)")


def test_a_layer_that_reads_parts_of_channels_is_left_alone():
    net = Net(3, 3, 2).conv(wild(1, 4, 1, 1, 2)).dense(wild(2, 3, 6), act="NONE")
    untouched(net.bytes(), why="does not read whole channels (1)", given={})


def test_a_last_axis_has_a_size_unless_it_is_dynamic():
    signs = (None, [-1, 4], [4, -1])
    sizes = [last_dimension(schema.TensorT(shape=[1, 4], shapeSignature=each)) for each in signs]
    assert sizes == [4, 4, None]


def test_a_model_that_only_rounding_decides_is_not_changed():
    """Its output is a difference of two numbers ten million times as large."""
    first = np.array([[1.1, 2.3, 0.7], [3e-2, 1.7, 0.3]], np.float32)
    weights = np.array([[3.3e3, 7.7e3]], np.float32)
    sample = np.random.default_rng(2).uniform(0.5, 1, 3).astype(np.float32)
    hidden = first @ sample
    bias = -(weights @ hidden)
    net = Net(3).dense(first).dense(weights, bias, act="NONE")
    given = {KEY: Feed({"x": sample[None]}, 1)}
    assert abs(outputs(net.bytes(), given)[0]).max() < 1e-2
    untouched(net.bytes(), why="equalization would change the outputs", given=given)


# What several operators share


@pytest.mark.parametrize("shared", ["tensor", "buffer"])
def test_a_bias_that_layers_share_is_changed_for_one_alone(shared):
    net = Net(5).dense(wild(1, 8, 5), wild(2, 8)).dense(wild(3, 8, 8, axis=1), wild(2, 8))
    net.dense(wild(4, 4, 8, axis=1), act="NONE")
    biases = [o.inputs[2] for o in net.graph.operators[:2]]
    if shared == "tensor":
        net.graph.operators[1].inputs[2] = biases[0]
    else:
        net.graph.tensors[biases[1]].buffer = net.graph.tensors[biases[0]].buffer
    data = net.bytes()
    done = equalise(data, {})
    assert len(done.pairs) == 2
    assert_same(data, done.model, feeds(5, seed=5))
    (_, first), (_, second), _ = constants(done.model)
    assert abs(first - second).max() > 1e-3
    names = [t.name for t in parse(done.model, where="the test").subgraphs[0].tensors]
    assert len(set(names)) == len(names)


def two_graphs(*, own: bool, called: bool = False) -> bytes:
    """Two signatures, on a graph each, which have weights of their own or the same."""
    model, other = two_dense(1).model(), two_dense(1 if not own else 50).model()
    codes, buffers = len(model.operatorCodes), len(model.buffers)
    (graph,) = other.subgraphs
    for operator in graph.operators:
        operator.opcodeIndex += codes
    if own:
        for tensor in graph.tensors:
            tensor.buffer += buffers
        model.buffers += other.buffers
    model.operatorCodes += other.operatorCodes
    model.subgraphs.append(graph)
    if not called:
        other.signatureDefs[0].signatureKey = "other"
        other.signatureDefs[0].subgraphIndex = 1
        model.signatureDefs += other.signatureDefs
    return packed(model)


def test_every_graph_with_a_signature_is_equalized():
    data = two_graphs(own=True)
    samples = feeds(5)[KEY]
    done = equalise(data, {KEY: samples, "other": samples})
    assert len(done.pairs) == 2
    for before, after in zip(constants(data, 1), constants(done.model, 1), strict=True):
        assert abs(before[0] - after[0]).max() > 1e-3
    assert_same(data, done.model, {KEY: samples})


def test_weights_that_two_graphs_share_are_left_alone():
    untouched(two_graphs(own=False), why="the weights are shared (4)", given={})


def test_a_graph_that_only_another_runs_is_left_alone():
    data = two_graphs(own=True, called=True)
    done = equalise(data)
    assert len(done.pairs) == 1
    for before, after in zip(constants(data, 1), constants(done.model, 1), strict=True):
        np.testing.assert_array_equal(before[0], after[0])


def test_a_graph_that_control_flow_runs_is_left_alone_though_it_has_a_signature():
    model = parse(two_graphs(own=True), where="the test")
    assert len(find_pairs(model).pairs) == 2
    once = schema.CallOnceOptionsT(initSubgraphIndex=1)
    operator = schema.OperatorT(opcodeIndex=0, inputs=[], outputs=[], builtinOptions=once)
    model.subgraphs[0].operators.insert(0, operator)
    model.operatorCodes.append(schema.OperatorCodeT(builtinCode=schema.BuiltinOperator.CALL_ONCE))
    operator.opcodeIndex = len(model.operatorCodes) - 1
    assert [pair.first.subgraph for pair in find_pairs(model).pairs] == [0]


# Bias absorption


def offset_dense(*, act: str = "RELU", bias: float = 40.0) -> Net:
    """Two layers whose weights are alike already; only an offset is left to take off."""
    rng = np.random.default_rng(3)
    first = rng.normal(size=(6, 5)).astype(np.float32)
    second = rng.normal(size=(4, 6)).astype(np.float32)
    second *= abs(first).max(axis=1) / abs(second).max(axis=0)
    offsets = np.array([bias, 0, bias / 2, 0, bias, -bias], np.float32)
    return Net(5).dense(first, offsets, act=act).dense(second, act="NONE")


def hidden(data: bytes, given: dict[str, Feed]) -> np.ndarray:
    """What the first layer gives."""
    model = parse(data, where="the test")
    graph = model.subgraphs[0]
    graph.outputs = [graph.operators[0].outputs[0]]
    model.signatureDefs[0].outputs = [schema.TensorMapT(name="h", tensorIndex=graph.outputs[0])]
    return outputs(serialize(model), given)[0]


def test_an_offset_goes_into_the_next_layers_bias():
    net = offset_dense()
    given = feeds(5, samples=64)
    done = equalise(net.bytes(), given)
    first = net.graph.tensors[net.graph.operators[0].outputs[0]].name
    assert (done.pairs, done.absorbed, done.notes) == ((), (first,), ())
    assert_same(net.bytes(), done.model, given)
    before, after = hidden(net.bytes(), given), hidden(done.model, given)
    np.testing.assert_array_equal(after[:, [1, 3, 5]], before[:, [1, 3, 5]])
    low, high = before.min(axis=0), before.max(axis=0)
    moved = [0, 2, 4]
    # A tenth of the spread is left for samples that go lower.
    expected = (before - low + 0.1 * (high - low))[:, moved]
    np.testing.assert_allclose(after[:, moved], expected, atol=1e-4)
    assert after.max() < before.max() / 3


def test_the_next_layer_gets_a_bias_if_it_has_none():
    net = offset_dense()
    assert [len(one) for one in constants(net.bytes())] == [2, 1]
    assert [len(one) for one in constants(equalise(net.bytes()).model)] == [2, 2]


def test_absorbing_again_changes_nothing():
    once = equalise(offset_dense().bytes())
    assert once.absorbed
    assert equalise(once.model).model is once.model


def test_an_offset_that_counts_once_larger_ones_are_gone_goes_at_once():
    """Else a second application would take it off."""
    net = offset_dense(bias=2000.0)
    net.graph.buffers[2].data = np.frombuffer(
        np.array([2000, 6, 0, 0, 0, 0], np.float32).tobytes(), np.uint8
    )
    once = equalise(net.bytes())
    before, after = hidden(net.bytes(), feeds(5)), hidden(once.model, feeds(5))
    assert before[:, 1].min() < before.max() / 256
    assert after[:, 1].min() < before[:, 1].min() / 2
    assert equalise(once.model).model is once.model


@pytest.mark.parametrize(("act", "bias"), [("RELU6", 40.0), ("NONE", 40.0), ("RELU", 0.0)])
def test_nothing_is_absorbed_without_a_relu_or_an_offset(act, bias):
    data = offset_dense(act=act, bias=bias).bytes()
    done = equalise(data)
    assert done.model is data
    assert done.absorbed == ()


def test_nothing_is_absorbed_without_samples():
    data = offset_dense().bytes()
    assert equalise(data, {}).model is data
    empty = {KEY: Feed({"x": np.zeros((0, 5), np.float32)}, 1)}
    assert equalise(data, empty).model is data


def test_offsets_hold_for_all_samples_not_only_the_first():
    data = offset_dense().bytes()
    values = np.random.default_rng(0).uniform(-1, 1, (8, 5)).astype(np.float32)
    values[-1] = -20 * np.sign(constants(data)[0][0][0])
    given = {KEY: Feed({"x": values}, 1)}
    assert_same(data, equalise(data, given).model, given)
    assert hidden(data, given)[:, 0].min() == 0


CONVS = {
    "1x1": (lambda net, w: net.conv(w(3, 1, 1, 4), padding="SAME", act="NONE"), True),
    "strided": (lambda net, w: net.conv(w(3, 1, 1, 4), padding="SAME", stride=2), True),
    "valid": (lambda net, w: net.conv(w(3, 3, 3, 4), act="NONE"), True),
    "padded": (lambda net, w: net.conv(w(3, 3, 3, 4), padding="SAME", act="NONE"), False),
    "valid depthwise": (lambda net, w: net.depthwise(w(1, 3, 3, 8), act="NONE"), True),
    "padded depthwise": (
        lambda net, w: net.depthwise(w(1, 3, 3, 8), padding="SAME", act="NONE"),
        False,
    ),
    "after a pad": (lambda net, w: net.pad().conv(w(3, 3, 3, 4), act="NONE"), False),
    "after a mean": (lambda net, w: net.mean(1, 2).dense(w(3, 4), act="NONE"), True),
    "after pools": (
        lambda net, w: (
            net.pool("MAX_POOL_2D").pool("AVERAGE_POOL_2D").conv(w(3, 1, 1, 4), act="NONE")
        ),
        True,
    ),
    "flattened": (lambda net, w: net.flatten().dense(w(3, 4 * SIZE * SIZE), act="NONE"), True),
    "after a second relu": (lambda net, w: net.same("RELU").conv(w(3, 1, 1, 4)), True),
    "after a leaky relu": (
        lambda net, w: net.same("LEAKY_RELU", options="LeakyReluOptions").conv(w(3, 1, 1, 4)),
        False,
    ),
}


@pytest.mark.parametrize("name", CONVS)
def test_offsets_are_absorbed_where_no_zeros_are_added(name):
    make, expected = CONVS[name]
    rng = np.random.default_rng(8)
    net = Net(SIZE, SIZE, 2).conv(rng.normal(size=(4, 1, 1, 2)), np.array([30, 20, 0, -3]))
    data = make(net, lambda *shape: rng.normal(size=shape)).bytes()
    given = feeds(SIZE, SIZE, 2)
    done = equalise(data, given)
    assert bool(done.absorbed) is expected
    assert_same(data, done.model, given)


def test_what_would_be_cut_off_by_padding_is_not_even_tried():
    rng = np.random.default_rng(8)
    net = Net(SIZE, SIZE, 2).conv(rng.normal(size=(4, 1, 1, 2)), np.array([30, 20, 0, -3]))
    data = net.conv(rng.normal(size=(3, 3, 3, 4)), padding="SAME").bytes()
    (pair,) = find_pairs(parse(data, where="the test")).pairs
    given = feeds(SIZE, SIZE, 2)
    assert absorb_biases(data, [pair], given, threads=1) == (data, ())
    without = pair._replace(second=pair.second._replace(padded=False))
    assert absorb_biases(data, [without], given, threads=1)[1] == (pair.first.name,)


def test_offsets_before_a_relu_of_its_own_are_absorbed():
    rng = np.random.default_rng(8)
    bias = np.array([30, 20, 0, -3])
    net = Net(SIZE, SIZE, 2).conv(rng.normal(size=(4, 1, 1, 2)), bias, act="NONE")
    net.pool("MAX_POOL_2D").same("RELU").conv(rng.normal(size=(3, 1, 1, 4)), act="NONE")
    given = feeds(SIZE, SIZE, 2)
    done = equalise(net.bytes(), given)
    assert len(done.absorbed) == 1
    assert_same(net.bytes(), done.model, given)


@given(seed=st.integers(0, 10**6), offset=st.floats(0, 100))
@settings(max_examples=40, deadline=None)
def test_equalised_and_absorbed_random_graphs_give_the_same_on_the_samples(seed, offset):
    rng = np.random.default_rng(seed)
    net = Net(SIZE, SIZE, 2)
    for index, channels in itertools.pairwise([2, 5, 6]):
        net.conv(wild(seed + channels, channels, 2, 2, index), offset * rng.uniform(size=channels))
    data = net.conv(wild(seed, 3, 1, 1, 6, axis=3), act="NONE").bytes()
    given = feeds(SIZE, SIZE, 2, seed=seed)
    assert_same(data, equalise(data, given).model, given)


# Whether outputs are the same


def dense(*weights: float) -> bytes:
    return Net(2).dense(np.array([weights], np.float32), act="NONE").bytes()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [((1, 1), True), ((1, 1 + 1e-5), True), ((1, 1.001), False), ((1, np.nan), False)],
)
def test_outputs_are_the_same_within_a_ten_thousandth(changed, expected):
    given = {KEY: Feed({"x": np.ones((1, 2), np.float32)}, 1)}
    assert same_outputs(dense(1, 1), dense(*changed), given, threads=1) is expected
