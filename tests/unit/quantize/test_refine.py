"""The pass over the layers of a small network, as a whole."""

import numpy as np
import pytest
from refine_models import KINDS, float_network, outputs, parts, quantised_network, samples
from tiny_tflite import Graph, packed
from wording import fails, says

from edgeconv.model.tflite.flatbuffer import operator_name, parse, text
from edgeconv.model.tflite.operators import scales_of, type_of
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.quantize.refine.matching import match_layers
from edgeconv.quantize.refine.refining import MIN_SAMPLES, refine_layers
from edgeconv.quantize.refine.weights import pack_int4, read_bias, unpack_int4
from edgeconv.quantize.trials import lowest_snr_db, outputs_of
from edgeconv.types import Recipe
from edgeconv.types.errors import InputRefused

NAMES = ("first", "depth", "wide", "y")
BOTH = frozenset({"rounding", "bias-correction"})
NONE = frozenset()
IMAGES = samples(64)
FRESH = samples(100, seed=99)


def feeds(images=IMAGES):
    return {"serving_default": Feed({"x": images}, 1)}


def refine(kind, methods=BOTH, *, bits=None, images=IMAGES, layers=None):
    """The network after the pass; `bits` for all layers, or by name."""
    layers = layers or parts()
    floating = float_network(layers)
    wanted = dict.fromkeys(NAMES, bits) if isinstance(bits, int) else bits or {}
    made = quantised_network(kind, layers)
    given = feeds(images) if images is not None else {}
    return refine_layers(made, floating, given, methods=methods, weight_bits=wanted, threads=1)


def error(data: bytes, layers=None) -> float:
    """The output's error on fresh samples, as a share of the float output's power."""
    want = outputs(float_network(layers), FRESH)
    return float(np.sum((outputs(data, FRESH) - want) ** 2) / np.sum(want**2))


def kernels(data: bytes):
    """(layer, type, version) of every refined operator."""
    model = parse(data, where="it")
    found = []
    for layer in match_layers(model, parse(float_network(), where="the other")):
        operator = model.subgraphs[0].operators[layer.quantized.number]
        kind = type_of(model.subgraphs[0].tensors[layer.quantized.weights])
        version = model.operatorCodes[operator.opcodeIndex].version
        found.append((layer.operator, kind, version))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_eight_bit_weights_come_closer_to_the_float_model(kind):
    done = refine(kind)
    assert error(done.model) < error(quantised_network(kind))
    assert [layer.bits for layer in done.layers] == [8, 8, 8, 8]
    assert done.notes == ()


@pytest.mark.parametrize("kind", ["int8", "weight-only"])
def test_refined_four_bit_weights_lose_a_third_at_most_of_what_plain_ones_do(kind):
    plain, done = refine(kind, NONE, bits=4), refine(kind, bits=4)
    base = error(quantised_network(kind))
    assert error(done.model) - base < (error(plain.model) - base) / 3
    assert [layer.bits for layer in done.layers] == [4, 4, 4, 4]
    assert [layer.name for layer in done.layers] == list(NAMES)


@pytest.mark.parametrize("methods", [NONE, BOTH])
def test_four_bits_are_stored_as_such_and_the_runtime_is_told(methods):
    done = refine("int8", methods, bits=4)
    assert kernels(done.model) == [
        ("CONV_2D", "int4", 7),
        ("DEPTHWISE_CONV_2D", "int4", 7),
        ("CONV_2D", "int4", 7),
        ("FULLY_CONNECTED", "int4", 10),
    ]
    assert len(done.model) < len(quantised_network("int8"))


def test_four_bits_behind_a_dequantize_raise_its_version():
    model = parse(refine("weight-only", NONE, bits=4).model, where="it")
    versions = {
        int(model.operatorCodes[o.opcodeIndex].version)
        for o in model.subgraphs[0].operators
        if operator_name(model, o) == "DEQUANTIZE"
    }
    assert versions == {6}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [None, 4])
def test_the_delegate_and_the_plain_kernels_agree(kind, bits):
    data = refine(kind, bits=bits).model
    own, plain = outputs(data, FRESH[:20]), outputs(data, FRESH[:20], delegate=False)
    span = np.ptp(own)
    # Integers may differ by a step; a hybrid kernel rounds inputs its own way.
    assert np.max(np.abs(own - plain)) < {"int8": 0.02, "dynamic": 0.02}.get(kind, 1e-3) * span


@pytest.mark.parametrize("kind", ["dynamic", "int16"])
def test_a_depthwise_convolution_keeps_eight_bits_where_the_runtime_has_no_four(kind):
    done = refine(kind, bits=4)
    assert [layer.bits for layer in done.layers] == [4, 8, 4, 4]
    says(done.notes)
    assert error(done.model) < error(refine(kind, NONE, bits=4).model)


def test_bits_go_to_the_layers_that_are_named():
    done = refine("int8", bits={"wide": 4, "first": 8})
    assert [layer.bits for layer in done.layers] == [8, 8, 4, 8]


def test_four_bits_of_nearest_need_no_samples():
    done = refine("int8", NONE, bits=4, images=None)
    assert done.model == refine("int8", NONE, bits=4).model


def test_nothing_asked_for_changes_nothing():
    done = refine("int8", NONE)
    assert done.model == quantised_network("int8")
    assert done.layers == ()


def test_equal_inputs_give_equal_bytes():
    assert refine("int8", bits=4).model == refine("int8", bits=4).model


@pytest.mark.parametrize("bits", [None, 4])
def test_bias_correction_gives_every_channel_its_mean(bits):
    data = refine("weight-only", frozenset({"bias-correction"}), bits=bits).model
    want = outputs(float_network(), IMAGES).mean(axis=0)
    np.testing.assert_allclose(outputs(data, IMAGES).mean(axis=0), want, atol=1e-4)


def test_bias_correction_alone_leaves_eight_bit_weights_as_they_are():
    before = parse(quantised_network("int8"), where="it")
    after = parse(refine("int8", frozenset({"bias-correction"})).model, where="it")
    for index, tensor in enumerate(before.subgraphs[0].tensors):
        other = after.subgraphs[0].tensors[index]
        if text(tensor.name).endswith("kernel"):
            assert bytes(before.buffers[tensor.buffer].data) == bytes(
                after.buffers[other.buffer].data
            )
            assert scales_of(tensor) == scales_of(other)


@pytest.mark.parametrize("kind", ["int8", "weight-only"])
def test_rounding_alone_comes_closer_too(kind):
    done = refine(kind, frozenset({"rounding"}), bits=4)
    assert error(done.model) < error(refine(kind, NONE, bits=4).model)


def test_integer_biases_stay_at_the_scale_of_the_sums():
    model = parse(refine("int8", bits=4).model, where="it")
    graph = model.subgraphs[0]
    for layer in match_layers(model, parse(float_network(), where="the other")):
        unit = scales_of(graph.tensors[layer.quantized.source])[0]
        weights = np.array(scales_of(graph.tensors[layer.quantized.weights]))
        bias = np.array(scales_of(graph.tensors[layer.quantized.bias]))
        np.testing.assert_allclose(bias, unit * weights, rtol=1e-6)


def test_a_dense_layer_without_a_bias_gets_one():
    layers = parts(dense_bias=False)
    done = refine("int8", bits=4, layers=layers)
    assert error(done.model, layers) < error(refine("int8", NONE, bits=4, layers=layers).model)
    model = parse(done.model, where="it")
    layer = match_layers(model, parse(float_network(layers), where="the other"))[-1]
    assert np.any(read_bias(model, layer, 5))


def test_a_bias_that_two_layers_share_is_copied():
    layers = parts()
    layers[1] = layers[1]._replace(bias=layers[0].bias)
    model = parse(quantised_network("weight-only", layers), where="it")
    convolutions = [o for o in model.subgraphs[0].operators if operator_name(model, o) != "MEAN"]
    convolutions = [o for o in convolutions if len(o.inputs) == 3]
    convolutions[1].inputs = [*convolutions[1].inputs[:2], convolutions[0].inputs[2]]
    done = refine_layers(
        packed(model), float_network(layers), feeds(), methods=BOTH, weight_bits={}, threads=1
    )
    want = outputs(float_network(layers), IMAGES).mean(axis=0)
    np.testing.assert_allclose(outputs(done.model, IMAGES).mean(axis=0), want, atol=1e-3)


def shared_weights(kind):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    values = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    if kind == "float":
        w = graph.tensor("w", (4, 4), "float32", data=values)
    else:
        scale = np.abs(values).max(axis=1) / 127
        numbers = np.rint(values / scale[:, None]).astype(np.int8)
        w = graph.tensor("w", (4, 4), "int8", data=numbers, scale=scale)
    y, z = graph.tensor("y", (1, 4), "float32"), graph.tensor("z", (1, 4), "float32")
    graph.operator("FULLY_CONNECTED", [x, w], [y], version=12)
    graph.operator("FULLY_CONNECTED", [y, w], [z], version=12)
    return packed(graph.model([x], [z], signature=("serving_default", ["x"], ["z"])))


def test_shared_weights_are_left_alone():
    images = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    given = {"serving_default": Feed({"x": images}, 1)}
    data = shared_weights("int8")
    done = refine_layers(
        data, shared_weights("float"), given, methods=BOTH, weight_bits={}, threads=1
    )
    assert done.model == data
    says(done.notes)


def siamese(*, chained):
    """Two layers of the same weights and bias, and samples: in a chain, or of one input."""
    random, graph = np.random.default_rng(0), Graph()
    values = random.normal(size=(64, 64)).astype(np.float32) / 8
    w = graph.tensor("w", (64, 64), "float32", data=values)
    b = graph.tensor("b", (64,), "float32", data=random.normal(size=64).astype(np.float32))
    x, y, z = (graph.tensor(name, (1, 64), "float32", dynamic=True) for name in "xyz")
    graph.operator("FULLY_CONNECTED", [x, w, b], [y])
    graph.operator("FULLY_CONNECTED", [y if chained else x, w, b], [z])
    ends = {"z": z} if chained else {"y": y, "z": z}
    signature = ("serving_default", ["x"], [*ends])
    floating = packed(graph.model([x], ends.values(), signature=signature))
    return floating, feeds(random.normal(size=(40, 64)).astype(np.float32))


@pytest.mark.parametrize("methods", [(), ("rounding", "bias-correction")])
@pytest.mark.parametrize("recipe", ["int8x4", "weight-only-int4"])
def test_layers_of_one_kind_get_four_bits_in_the_weights_that_they_share(recipe, methods):
    """As the towers of a siamese network, or the steps of a recurrent one, have them."""
    floating, given = siamese(chained=True)
    calibrated = CalibratedGraph(floating, given, threads=1)
    small, large = (
        make_file(calibrated, Recipe(name=each), MethodSettings("minmax", methods))
        for each in (recipe, recipe.replace("int8x4", "int8").replace("int4", "int8"))
    )
    assert small.four_bit == ("y", "z")
    assert len(large.model) - len(small.model) > 64 * 64 / 2 - 500
    expected = outputs_of(floating, given, threads=1)
    # What the rounding of weights to 15 values leaves.
    assert lowest_snr_db(expected, outputs_of(small.model, given, threads=1)) > 14
    tensors = parse(small.model, where="it").subgraphs[0].tensors
    assert [type_of(tensor) for tensor in tensors].count("int4") == 1


def test_a_bias_that_layers_share_with_their_weights_is_not_copied():
    floating, given = siamese(chained=False)
    calibrated = CalibratedGraph(floating, given, threads=1)
    file = make_file(calibrated, Recipe(name="int8x4"), MethodSettings("minmax", ()))
    assert file.four_bit == ("y", "z")
    tensors = parse(file.model, where="it").subgraphs[0].tensors
    assert [type_of(tensor) for tensor in tensors].count("int32") == 1
    expected = outputs_of(floating, given, threads=1)
    assert lowest_snr_db(expected, outputs_of(file.model, given, threads=1)) > 14


def test_too_few_samples_name_the_number_that_is_wanted():
    with fails(InputRefused):
        refine("int8", frozenset({"rounding"}), images=IMAGES[:5])


def test_a_layer_that_is_not_there_is_refused():
    with fails(InputRefused):
        refine("int8", bits={"other": 4})
    with fails(InputRefused):
        refine("int8", bits={"wide": 3})


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_do_not_belong_together_are_refused(kind):
    other = float_network(parts(seed=8))
    with fails(InputRefused):
        refine_layers(
            quantised_network(kind), other, feeds(), methods=BOTH, weight_bits={}, threads=1
        )


def test_a_graph_with_variables_comes_back_as_it_is():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    graph.computed("v", (1,), "VAR_HANDLE", [], "resource")
    data = packed(graph.model([x], [x], signature=("serving_default", ["x"], ["x"])))
    done = refine_layers(data, data, feeds(), methods=BOTH, weight_bits={}, threads=1)
    assert done.model == data
    says(done.notes)


def test_halves_of_bytes_come_back():
    numbers = np.array([-8, 7, 0, -1, 3], np.int8)
    raw = pack_int4(numbers)
    assert raw.tolist() == [0x78, 0xF0, 0x03]
    np.testing.assert_array_equal(unpack_int4(raw.view(np.int8), 5), numbers)


def test_a_layer_too_wide_for_second_moments_gets_its_means(monkeypatch):
    monkeypatch.setattr("edgeconv.quantize.refine.refining.MOST_INPUTS", 20)
    done = refine("weight-only", bits=4)
    assert "more than" in done.notes[0]
    assert done.notes[0].startswith("first, y: ")
    want = outputs(float_network(), IMAGES).mean(axis=0)
    np.testing.assert_allclose(outputs(done.model, IMAGES).mean(axis=0), want, atol=1e-4)


def dense(values, *, scale=None):
    """y = W x without a bias; `scale` stores W as int8 at these scales."""
    graph = Graph()
    x = graph.tensor("x", (1, values.shape[1]), "float32")
    if scale is None:
        w = graph.tensor("w", values.shape, "float32", data=values)
    else:
        numbers = np.rint(values / np.reshape(scale, (-1, 1))).astype(np.int8)
        w = graph.tensor("w", values.shape, "int8", data=numbers, scale=scale)
    y = graph.computed("y", (1, len(values)), "FULLY_CONNECTED", [x, w], version=3)
    return graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))


def test_weights_of_one_scale_keep_it():
    values = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    values[0] *= 20
    scale = float(np.abs(values).max()) / 127
    images = np.random.default_rng(1).normal(1, 1, size=(64, 8)).astype(np.float32)
    given = {"serving_default": Feed({"x": images}, 1)}
    data = packed(dense(values, scale=scale))
    done = refine_layers(
        data, packed(dense(values)), given, methods=BOTH, weight_bits={}, threads=1
    )
    model = parse(done.model, where="it")
    (layer,) = match_layers(model, parse(packed(dense(values)), where="the other"))
    kept = scales_of(model.subgraphs[0].tensors[layer.quantized.weights])
    assert kept == scales_of(parse(data, where="it").subgraphs[0].tensors[1])
    want = outputs(packed(dense(values)), images)
    before, after = (np.sum((outputs(m, images) - want) ** 2) for m in (data, done.model))
    assert after < 0.75 * before


def test_a_model_of_several_signatures_comes_back_as_it_is():
    values = np.eye(4, dtype=np.float32)
    model = dense(values)
    model.signatureDefs = [*model.signatureDefs, *dense(values).signatureDefs]
    model.signatureDefs[1].signatureKey = "another"
    data = packed(model)
    done = refine_layers(data, data, feeds(), methods=BOTH, weight_bits={}, threads=1)
    assert done.model == data
    assert "several signatures" in done.notes[0]


def test_samples_of_another_signature_are_of_no_use():
    data = packed(dense(np.eye(4, dtype=np.float32)))
    given = {"other": Feed({"x": np.ones((40, 4), np.float32)}, 1)}
    done = refine_layers(data, data, given, methods=BOTH, weight_bits={}, threads=1)
    assert done.model == data
    assert "no samples" in done.notes[0]


def test_other_operators_with_weights_are_named():
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    table = graph.tensor("t", (4, 4), "float32", data=np.eye(4, dtype=np.float32))
    y = graph.computed("y", (1, 4), "BATCH_MATMUL", [x, table])
    data = packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))
    images = np.ones((40, 4), np.float32)
    given = {"serving_default": Feed({"x": images}, 1)}
    done = refine_layers(data, data, given, methods=BOTH, weight_bits={}, threads=1)
    assert done.model == data
    says(done.notes)


@pytest.mark.parametrize("batch", [1, 4])
def test_samples_may_come_in_batches(batch):
    given = {"serving_default": Feed({"x": IMAGES}, batch)}
    data = quantised_network("int8")
    done = refine_layers(data, float_network(), given, methods=BOTH, weight_bits={}, threads=2)
    assert error(done.model) < error(data)


def test_little_memory_leaves_the_least_number_of_samples(monkeypatch):
    everything = refine("int8", bits=4).model
    monkeypatch.setattr("edgeconv.quantize.refine.refining._MOST_BYTES", 1)
    chosen = np.linspace(0, len(IMAGES) - 1, MIN_SAMPLES["rounding"]).astype(int)
    fewer = refine("int8", bits=4).model
    assert fewer != everything
    assert fewer == refine("int8", bits=4, images=IMAGES[chosen]).model


def test_a_bias_that_is_computed_is_left_alone():
    def model(scale=None):
        made = dense(np.eye(4, dtype=np.float32), scale=scale)
        graph = made.subgraphs[0]
        graph.operators[0].inputs = [*graph.operators[0].inputs, 0]
        graph.tensors[0].shape = np.array([4], np.int32)
        return packed(made)

    given = {"serving_default": Feed({"x": IMAGES.reshape(64, -1)[:, :4]}, 1)}
    data = model(1 / 127)
    done = refine_layers(data, model(), given, methods=NONE, weight_bits={"y": 4}, threads=1)
    assert done.model == data
    says(done.notes)
