"""Keras 3 and tf_keras models opened as flat tf_keras models: what they compute, and refusals."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import captured
from places import SHARED

from edgeconv.data import Samples, write_samples
from edgeconv.tf.environment import use_cpu_only
from edgeconv.tf.export import export_inference
from edgeconv.tf.keras_files import export, load
from edgeconv.tf.qat import flat
from edgeconv.tf.qat.flat import flatten
from edgeconv.tf.qat.opened import QatModel, open_for_qat, open_in_memory
from edgeconv.types.errors import InputRefused, VerificationFailed

use_cpu_only()
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402
from keras import layers as k3  # noqa: E402
from keras import ops  # noqa: E402
from tf_keras import layers as k2  # noqa: E402

SIZE = 32
IMAGE, SERIES, TOKENS = (12, 10, 3), (9, 6), (9,)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*You are saving your model as an HDF5 file.*"),
    pytest.mark.filterwarnings("ignore:.*HDF5 file via `model.save.*"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]


def shaken(model: Any) -> Any:
    """The model with weights that are nowhere what they begin with."""
    rng = np.random.default_rng(1)

    def value(variable: Any) -> Any:
        noise = rng.normal(size=variable.shape) * 0.3
        return 0.3 + abs(noise) if "variance" in variable.name else noise

    integers = [one for one in model.weights if "float" not in str(one.dtype)]
    if not integers:
        model.set_weights([value(one) for one in model.weights])
    return model


def samples_for(model: Any, count: int = 6) -> dict[str, Any]:
    """Random samples, by the names of the model's inputs."""
    rng = np.random.default_rng(2)
    samples = {}
    for tensor in model.inputs:
        shape = [count, *(size or 9 for size in tensor.shape[1:])]
        is_index = "int" in str(tensor.dtype)
        drawn = rng.integers(0, 10, shape) if is_index else rng.normal(size=shape)
        name = tensor._keras_history[0].name
        samples[name] = drawn.astype(np.int32 if is_index else np.float32)
    return samples


def opened_with_noise(model: Any) -> QatModel:
    return open_in_memory(shaken(model), samples_for(model))


def sequential(*layers: Any, shape: tuple[int | None, ...], dtype: str = "float32") -> Any:
    return keras.Sequential([keras.Input(shape, dtype=dtype, name="x"), *layers])


def is_flat(model: Any) -> bool:
    kinds = {type(layer).__name__ for layer in model.layers}
    nested = any(isinstance(layer, tf_keras.Model) for layer in model.layers)
    return not nested and not kinds & {"TFOpLambda", "SlicingOpLambda", "Lambda"}


def images(count: int, size: int) -> Any:
    return np.random.default_rng(3).integers(0, 255, (count, size, size, 3)).astype(np.float32)


LAYERS = {
    IMAGE: lambda: [
        k3.Conv2D(4, 3, strides=2, padding="same", kernel_regularizer="l2", activation="relu"),
        k3.Conv2D(6, 3, groups=3, dilation_rate=2, bias_constraint="non_neg", use_bias=False),
        k3.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="silu"),
        k3.SeparableConv2D(5, 3, strides=2, padding="same", activation="hard_silu"),
        k3.Conv2DTranspose(4, 3, strides=2, padding="same"),
        k3.BatchNormalization(epsilon=1e-2, momentum=0.7),
        k3.BatchNormalization(scale=False, center=False, axis=2),
        k3.LayerNormalization(axis=(1, 2, 3)),
        k3.GroupNormalization(groups=3),
        k3.UnitNormalization(),
        k3.MaxPooling2D(3, 2, "same"),
        k3.AveragePooling2D(3, 2, "same"),
        k3.GlobalAveragePooling2D(keepdims=True),
        k3.GlobalMaxPooling2D(),
        k3.UpSampling2D(interpolation="bilinear"),
        k3.ZeroPadding2D(((1, 2), (0, 3))),
        k3.Cropping2D(((1, 2), (0, 3))),
        k3.Dropout(0.4, seed=3),
        k3.SpatialDropout2D(0.3),
        k3.GaussianNoise(0.1),
        k3.Reshape((5, -1)),
        k3.Permute((2, 1, 3)),
        k3.PReLU(shared_axes=[1, 2]),
        k3.LeakyReLU(negative_slope=0.2),
        k3.ReLU(max_value=6.0, negative_slope=0.1, threshold=0.2),
        k3.ELU(0.3),
        k3.Softmax(axis=1),
        k3.Rescaling([1.0, 0.5, 0.25], offset=-1),
        k3.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 2.0, 3.0]),
        k3.Normalization(axis=None, mean=2.0, variance=3.0, invert=True),
        k3.Resizing(20, 21, interpolation="nearest"),
        k3.CenterCrop(6, 6),
        k3.EinsumDense("abcd,de->abce", (None, None, 4), bias_axes="e", activation="relu6"),
        k3.TimeDistributed(k3.Dense(4, activation="tanh")),
        k3.ConvLSTM1D(3, 3),
    ],
    SERIES: lambda: [
        k3.LSTM(5, return_sequences=True, go_backwards=True, dropout=0.2),
        k3.GRU(5, return_sequences=True),
        k3.GRU(4, reset_after=False),
        k3.SimpleRNN(4, activation="relu"),
        k3.Bidirectional(k3.LSTM(4, return_sequences=True)),
        k3.Bidirectional(k3.LSTM(3), backward_layer=k3.GRU(3, go_backwards=True)),
        k3.RNN([k3.GRUCell(4), k3.LSTMCell(3)]),
        k3.Conv1D(4, 3, padding="causal", activation="hard_sigmoid"),
        k3.DepthwiseConv1D(3),
        k3.SeparableConv1D(4, 3),
        k3.Conv1DTranspose(3, 3, strides=2),
        k3.AveragePooling1D(2),
        k3.Masking(0.0),
    ],
}
LAYER_CASES = [(shape, index) for shape, make in LAYERS.items() for index in range(len(make()))]


@pytest.mark.parametrize(("shape", "index"), LAYER_CASES)
def test_a_layer_of_keras_3_becomes_one_of_tf_keras_with_its_weights(shape, index):
    model = sequential(LAYERS[shape]()[index], shape=shape)
    answer = opened_with_noise(model)
    assert answer.rebuilt
    assert answer.max_abs_error <= 1e-6
    assert is_flat(answer.model)
    assert answer.model.count_params() == model.count_params()


ACTIVATIONS = (
    *("relu", "relu6", "silu", "gelu", "hard_sigmoid", "hard_silu", "leaky_relu", "elu", "selu"),
    *("mish", "softplus", "softsign", "exponential", "hard_tanh", "tanh", "sigmoid", "softmax"),
)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_same_function_in_a_layer_and_as_one(name):
    model = sequential(k3.Dense(5, activation=name), k3.Activation(name), shape=(7,))
    assert opened_with_noise(model).max_abs_error <= 1e-6


def test_hard_sigmoid_is_not_tf_keras_s_own_function_of_that_name():
    """Else the test above would hold because the two are one."""
    x = tf.linspace(-4.0, 4.0, 9)
    theirs, ours = tf_keras.activations.hard_sigmoid(x), keras.activations.hard_sigmoid(x)
    assert np.abs(np.asarray(theirs) - np.asarray(ours)).max() > 0.05


def test_an_activation_that_is_a_layer_comes_after_its_layer():
    ends = k3.ReLU(max_value=2.0, negative_slope=0.1), k3.LeakyReLU(negative_slope=0.2)
    model = sequential(*(k3.Dense(5, activation=end) for end in ends), shape=(7,))
    answer = opened_with_noise(model)
    kinds = [type(layer).__name__ for layer in answer.model.layers]
    assert kinds == ["InputLayer", "Dense", "ReLU", "Dense", "LeakyReLU"]


def test_regularisers_and_momentum_are_kept_for_the_training():
    model = sequential(
        k3.Dense(4, kernel_regularizer=keras.regularizers.L2(0.25), name="d"),
        k3.BatchNormalization(momentum=0.7, name="b"),
        shape=(7,),
    )
    built = opened_with_noise(model).model
    assert float(built.get_layer("d").kernel_regularizer.l2) == 0.25
    assert built.get_layer("b").momentum == 0.7


def test_what_a_normalisation_has_learnt_is_among_its_settings():
    layer = k3.Normalization(axis=(1, -1))
    layer.adapt(np.random.default_rng(0).normal(3, 2, (50, *IMAGE)))
    model = sequential(layer, shape=IMAGE)
    answer = open_in_memory(model, samples_for(model))
    again = tf_keras.Model.from_config(answer.model.get_config())
    assert answer.max_abs_error <= 1e-6
    assert again.get_weights() == []
    x = samples_for(model)["x"]
    np.testing.assert_array_equal(again(x), answer.model(x))


def two() -> tuple[Any, Any]:
    return keras.Input((8, 6, 4), name="x"), keras.Input((8, 6, 4), name="z")


OPERATIONS = {
    "add": lambda x, z: x + z,
    "subtract": lambda x, z: x - z,
    "multiply": lambda x, z: x * z,
    "add a constant": lambda x, _: 3.0 + x,
    "subtract channel constants": lambda x, _: x - np.arange(4.0),
    "subtract from a constant": lambda x, _: 1 - x,
    "multiply by channel constants": lambda x, _: x * np.arange(4.0).reshape(1, 1, 1, 4),
    "divide by a constant": lambda x, _: x / 3,
    "square": lambda x, _: x**2,
    "negative": lambda x, _: -x,
    "maximum": lambda x, z: ops.maximum(x, z),
    "maximum of a constant": lambda x, _: ops.maximum(0.5, x),
    "minimum of a constant": lambda x, _: ops.minimum(x, 0.5),
    "clip": lambda x, _: ops.clip(x, -0.5, 0.7),
    "absolute": lambda x, _: abs(x),
    "relu": lambda x, _: ops.relu(x),
    "leaky relu": lambda x, _: ops.leaky_relu(x, 0.3),
    "gelu by tanh": lambda x, _: ops.gelu(x),
    "gelu": lambda x, _: ops.gelu(x, approximate=False),
    "softmax over rows": lambda x, _: ops.softmax(x, axis=1),
    "hard sigmoid": lambda x, _: ops.hard_sigmoid(x),
    "cast": lambda x, _: ops.cast(x, "float32"),
    "mean over the image": lambda x, _: ops.mean(x, axis=(1, 2)),
    "mean over rows": lambda x, _: ops.mean(x, axis=1),
    "mean over channels, kept": lambda x, _: ops.mean(x, axis=-1, keepdims=True),
    "mean over rows and channels": lambda x, _: ops.mean(x, axis=(1, 3)),
    "mean over all": lambda x, _: ops.mean(x, axis=(1, 2, 3)),
    "max, kept": lambda x, _: ops.max(x, axis=(1, 2), keepdims=True),
    "sum": lambda x, _: ops.sum(x, axis=2),
    "reshape": lambda x, _: ops.reshape(x, (-1, 48, 4)),
    "expand": lambda x, _: ops.expand_dims(x, 2),
    "squeeze": lambda x, _: ops.squeeze(x[:, 2:3], 1),
    "transpose": lambda x, _: ops.transpose(x, (0, 3, 1, 2)),
    "swap": lambda x, _: ops.swapaxes(x, 1, -1),
    "concatenate": lambda x, z: ops.concatenate([x, z, x], axis=1),
    "stack": lambda x, z: ops.stack([x, z], axis=2),
    "split": lambda x, _: ops.split(x, [1, 3], axis=-1),
    "unstack": lambda x, _: ops.unstack(x, axis=1),
    "slice": lambda x, _: x[:, 1:5, :-1, 2:],
    "slice at the end": lambda x, _: x[..., 1],
    "slice with a new axis": lambda x, _: x[:, None, 2],
    "pad": lambda x, _: ops.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0))),
    "matmul": lambda x, z: ops.matmul(x[:, 0], ops.swapaxes(z[:, 1], 1, 2)),
    "broadcast": lambda x, z: x * ops.mean(z, axis=(1, 2), keepdims=True),
    "an input as output": lambda x, z: [x, x + z, x],
    "divide by a tensor": lambda x, _: 3 / (x + 5.0),
    "cube": lambda x, _: x**3,
    "every second": lambda x, _: x[:, ::2],
    "where": lambda x, z: ops.where(x > 0, x, z),
    "pad with ones": lambda x, _: ops.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0)), constant_values=1),
    "sort": lambda x, _: ops.sort(x, axis=1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_used_as_a_layer_computes_the_same(name):
    x, z = two()
    answer = opened_with_noise(keras.Model([x, z], OPERATIONS[name](x, z)))
    assert answer.max_abs_error <= 1e-6
    assert is_flat(answer.model)
    assert answer.input_names == ("x", "z")


ACROSS_SAMPLES = {
    "mean over samples": lambda x, _: ops.mean(x, axis=0),
    "mean of everything": lambda x, _: ops.mean(x),
    "reshape across samples": lambda x, _: ops.reshape(x, (-1, 6, 4)),
    "transpose of the batch": lambda x, _: ops.transpose(x),
    "concatenate samples": lambda x, z: ops.concatenate([x, z], axis=0),
    "rows of samples": lambda x, z: x + ops.mean(z, axis=(1, 2)),
    "every second sample": lambda x, _: x[::2, :],
    "a constant of samples": lambda x, _: x * np.ones((5, 1, 1, 1)),
}


@pytest.mark.parametrize("name", ACROSS_SAMPLES)
def test_an_operation_across_samples_is_refused(name):
    x, z = two()
    model = keras.Model([x, z], ACROSS_SAMPLES[name](x, z))
    with pytest.raises(InputRefused, match="No counterpart for") as refused:
        flatten(model)
    assert "across samples" in refused.value.message


WITH_CONSTANT = {
    "matrix": lambda x: ops.matmul(x, np.arange(12.0).reshape(4, 3)),
    "einsum": lambda x: ops.einsum("bijc,cd->bijd", x, np.arange(12.0).reshape(4, 3)),
    "kernel": lambda x: ops.conv(x, np.ones((3, 3, 4, 2), np.float32)),
}


@pytest.mark.parametrize("name", WITH_CONSTANT)
def test_a_product_with_a_constant_is_refused(name):
    x, _ = two()
    with pytest.raises(InputRefused, match="a constant kernel or matrix only from a layer"):
        flatten(keras.Model(x, WITH_CONSTANT[name](x)))


def test_an_output_that_cannot_train_is_refused():
    x, _ = two()
    with pytest.raises(InputRefused, match=r"output 0 \(bool, which does not train"):
        flatten(keras.Model(x, ops.not_equal(x, 0.0)))


@keras.saving.register_keras_serializable("qat_tests")
class Doubled(keras.layers.Layer):
    """A layer that only this file knows."""

    def call(self, inputs):
        return inputs * 2


@keras.saving.register_keras_serializable("qat_tests")
def squared(x):
    return x * x


def test_all_layers_without_a_counterpart_are_named_at_once():
    x = keras.Input((8,), name="x")
    y = k3.Dense(3, activation=squared, name="own activation")(x)
    y = k3.RMSNormalization(name="rms")(Doubled(name="doubled")(y))
    y = k3.Reshape((3, 1))(k3.Lambda(lambda t: t + 1, name="code")(y))
    y = k3.LSTM(3, recurrent_activation="hard_sigmoid", name="lstm")(y)
    with pytest.raises(InputRefused, match="No counterpart for 5 of its layers") as refused:
        flatten(keras.Model(x, y))
    named = ("own activation (Dense", "doubled (Doubled", "rms (RMSNorm", "code (Lam", "lstm (LSTM")
    assert all(name in refused.value.message for name in named)
    assert "--to int8" in refused.value.hint


def test_a_setting_that_tf_keras_does_not_have_is_named():
    model = sequential(k3.Resizing(8, 8, antialias=True, name="small"), shape=IMAGE)
    with pytest.raises(InputRefused, match=r"small \(Resizing: .* antialias \(antialias=True\)"):
        flatten(model)


class Coded(keras.Model):
    """A model without a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = k3.Dense(2)

    def call(self, inputs):
        return self.dense(inputs)


def test_a_model_that_is_code_is_refused_alone_and_within_another():
    coded = Coded()
    coded(np.zeros((1, 8), np.float32))
    with pytest.raises(InputRefused, match=r"\(Coded\) has no graph of layers"):
        flatten(coded)
    x = keras.Input((8,))
    with pytest.raises(InputRefused, match=r"coded\w* \(Coded: its class is not one"):
        flatten(keras.Model(x, k3.Dense(2)(Coded()(x))))
    with pytest.raises(InputRefused, match=r"\(Sequential\) has no graph of layers"):
        flatten(tf_keras.Sequential([k2.Dense(2)]))


def backbone_and_head() -> Any:
    """A model of models, with names that collide and a backbone that does not train."""
    backbone = keras.Sequential(
        [
            keras.Input(IMAGE),
            k3.Conv2D(4, 3, name="conv"),
            k3.BatchNormalization(name="norm"),
            k3.ReLU(name="act"),
            k3.Dropout(0.3, name="drop"),
        ],
        name="backbone",
    )
    x = keras.Input((10, 8, 4))
    pools = keras.Model(x, [k3.GlobalAveragePooling2D()(x), k3.GlobalMaxPooling2D(name="act")(x)])
    image = keras.Input(IMAGE, name="image")
    y = backbone(k3.Conv2D(3, 3, padding="same", name="conv")(image), training=False)
    mean, most = pools(y)
    outputs = {"zeta": k3.Dense(3, name="logits")(mean), "alpha": k3.Dense(2, name="d")(most)}
    return shaken(keras.Model(image, outputs))


def test_nested_models_are_put_in_their_place():
    model = backbone_and_head()
    answer = open_in_memory(model, samples_for(model))
    names = [layer.name for layer in answer.model.layers]
    assert is_flat(answer.model)
    assert {"conv", "backbone_conv", "norm", "act", "logits", "d"} < set(names)
    assert len(set(names)) == len(names)
    # It was called with training=False: its averages stay, and nothing is dropped.
    assert not answer.model.get_layer("norm").trainable
    assert "drop" not in names
    assert "backbone/norm" in answer.notes[0]


def test_inputs_and_outputs_have_the_names_of_the_conversion(tmp_path):
    model = backbone_and_head()
    model.save(tmp_path / "m.keras")
    export(str(tmp_path / "m.keras"), "keras", str(tmp_path / "exported"))
    serve = tf.saved_model.load(tmp_path / "exported").signatures["serving_default"]
    answer = open_in_memory(model, samples_for(model))
    x = samples_for(model)["image"]
    served = serve(image=x)
    assert answer.output_names == ("alpha", "zeta") == tuple(sorted(served))
    assert answer.model.output_names == ["alpha", "zeta"]
    for name, value in zip(answer.output_names, answer.model(x), strict=True):
        np.testing.assert_allclose(value, served[name], atol=1e-5)


def test_a_layer_with_weights_stays_shared_and_one_without_does_not():
    dense, relu = k3.Dense(8, name="shared"), k3.ReLU(name="relu")
    tower = keras.Sequential([keras.Input((8,)), k3.Dense(4, name="in the tower"), k3.ReLU()])
    a, b = keras.Input((8,), name="a"), keras.Input((8,), name="b")
    both = tower(relu(dense(a))) - tower(relu(dense(b)))
    model = keras.Model([a, b], [both, dense(relu(dense(a)))])
    answer = opened_with_noise(model)
    assert answer.model.count_params() == model.count_params()
    uses = {layer.name: len(layer._inbound_nodes) for layer in answer.model.layers}
    assert (uses["shared"], uses["in_the_tower"]) == (4, 2)
    assert all(count == 1 for name, count in uses.items() if "relu" in name or "re_lu" in name)


def test_an_unused_input_and_inputs_in_a_dict_are_kept():
    a, b = keras.Input((8,), name="a"), keras.Input((5,), name="b")
    answer = opened_with_noise(keras.Model([b, a], k3.Dense(3)(a)))
    assert answer.input_names == ("b", "a")
    assert [one.shape[1] for one in answer.model.inputs] == [5, 8]
    joined = k3.Concatenate()([k3.Dense(3)(a), b])
    assert opened_with_noise(keras.Model({"b": b, "a": a}, joined)).max_abs_error <= 1e-6


def test_the_batch_is_open_as_it_is_when_the_model_is_converted():
    x = keras.Input((7,), batch_size=4, name="x")
    model = shaken(keras.Model([x], k3.Dense(2)(x)))
    answer = open_in_memory(model, samples_for(model, 13))
    assert answer.model.inputs[0].shape == (None, 7)


def test_weights_are_those_of_the_moment_and_stay_apart():
    model = sequential(k3.Dense(2, name="d"), shape=(3,))
    shaken(model)
    answer = open_in_memory(model, samples_for(model))
    before = answer.model.get_weights()
    model.set_weights([2 * one for one in model.get_weights()])
    np.testing.assert_array_equal(answer.model.get_weights()[0], before[0])
    again = open_in_memory(model, samples_for(model))
    np.testing.assert_array_equal(again.model.get_weights()[0], 2 * before[0])


@pytest.mark.parametrize("saved", [False, True])
def test_masks_that_come_with_embeddings_are_followed(tmp_path, saved):
    x = keras.Input(TOKENS, dtype="int32", name="x")
    e = k3.Embedding(10, 8, mask_zero=True)(x)
    y = k3.Add()([k3.MultiHeadAttention(2, 4, dropout=0.1)(e, e), e])
    y = k3.Bidirectional(k3.LSTM(4, return_sequences=True))(y)
    model = shaken(keras.Model(x, k3.Dense(3)(k3.GlobalAveragePooling1D()(y))))
    if saved:
        model.save(tmp_path / "m.keras")
        model = load(str(tmp_path / "m.keras"), "keras")[0]
    samples = samples_for(model)
    samples["x"][:, 5:] = 0
    assert open_in_memory(model, samples).max_abs_error <= 1e-6


def test_a_mask_of_the_model_s_own_is_computed():
    x = keras.Input(TOKENS, dtype="int32", name="x")
    e = k3.Embedding(10, 8)(x)
    mask = ops.not_equal(ops.expand_dims(x, 1), 0)
    y = k3.MultiHeadAttention(2, 4, name="look")(e, e, attention_mask=mask)
    model = shaken(keras.Model(x, y))
    samples = samples_for(model)
    samples["x"][:, 5:] = 0
    assert open_in_memory(model, samples).max_abs_error <= 1e-6


def test_a_transformer_block_is_rebuilt():
    x = keras.Input(TOKENS, dtype="int32", name="x")
    e = k3.Embedding(10, 8)(x)
    y = k3.LayerNormalization()(k3.MultiHeadAttention(2, 4)(e, e, use_causal_mask=True) + e)
    y = k3.MultiHeadAttention(2, 4, value_dim=3, use_bias=False)(y, value=e, key=e)
    y = k3.Dense(3, activation="softmax")(y[:, 0])
    assert opened_with_noise(keras.Model(x, y)).max_abs_error <= 1e-6


def test_layers_that_change_samples_in_training_are_left_out_and_reported():
    layers = k3.RandomFlip(name="flip"), k3.RandomRotation(0.1), k3.Conv2D(2, 3)
    answer = opened_with_noise(sequential(*layers, shape=IMAGE))
    kinds = [type(layer).__name__ for layer in answer.model.layers]
    assert kinds == ["InputLayer", "Conv2D"]
    assert answer.notes == ("left out, because they act in training only: flip, random_rotation",)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "mixed_bfloat16", "float64"])
def test_a_model_of_other_floats_computes_in_float32(policy):
    was = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        head = keras.Sequential([k3.GlobalAveragePooling2D(), k3.Dense(4)])
        x = keras.Input(IMAGE, name="x")
        y = k3.BatchNormalization()(k3.Conv2D(4, 3)(x)) * 2.0 + 1.0
        model = keras.Model(x, k3.Activation("softmax", dtype="float32")(head(y)))
    finally:
        keras.config.set_dtype_policy(was)
    answer = opened_with_noise(model)
    assert answer.max_abs_error <= 1e-6
    assert {one.dtype.name for one in answer.model.weights} == {"float32"}
    assert {one.compute_dtype for one in answer.model.layers} == {"float32"}
    assert answer.notes == ("computes in float32, and not in the model's own floats",)
    # And that is what the model itself computes, as far as its own floats go.
    x = samples_for(model)["x"]
    np.testing.assert_allclose(answer.model(x), model(x), atol=5e-3)


def test_where_two_models_part_the_first_layer_is_named(monkeypatch):
    model = sequential(
        k3.Dense(4, name="one"),
        k3.BatchNormalization(name="two"),
        k3.Dense(3, activation="tanh", name="three"),
        k3.Dense(3, name="four"),
        shape=(8,),
    )
    shaken(model)
    known = flat.fusable
    monkeypatch.setattr(flat, "fusable", lambda name: "sigmoid" if name == "tanh" else known(name))
    with pytest.raises(VerificationFailed, match=r"that differs is three \(Dense\)"):
        open_in_memory(model, samples_for(model))


def test_an_answer_that_is_finite_in_one_model_only_is_no_agreement(monkeypatch):
    model = sequential(k3.Dense(2, name="d", activation="exponential"), shape=(3,))
    model.set_weights([np.full((3, 2), 90.0), np.zeros(2)])
    known = flat.fusable
    monkeypatch.setattr(
        flat, "fusable", lambda name: "tanh" if name == "exponential" else known(name)
    )
    with pytest.raises(VerificationFailed, match="differ by inf"):
        open_in_memory(model, {"x": np.ones((2, 3), np.float32)})


def test_samples_for_other_inputs_are_refused():
    model = sequential(k3.Dense(2), shape=(3,))
    with pytest.raises(InputRefused, match="the samples are for 'y', the model takes 'x'"):
        open_in_memory(model, {"y": np.zeros((2, 3), np.float32)})


def tf_keras_model() -> Any:
    """A model of tf_keras with TensorFlow's functions, a nested model and a shared layer."""
    image = tf_keras.Input((8, 8, 3), name="image")
    x = tf.reduce_mean(tf.nn.relu(image + 3.0), axis=(1, 2))
    x = tf.reshape(x, (tf.shape(x)[0], 3, 1))[:, 1:, 0]
    halves = (x - 1) / 2
    head = tf_keras.Sequential([k2.Dense(4), k2.BatchNormalization(), k2.Dense(2)], name="head")
    dense = k2.Dense(2, activation="hard_sigmoid", name="dense")
    y = tf.concat([dense(x), dense(halves)], axis=-1) * tf.constant([1.0, 2.0, 3.0, 4.0])
    outputs = [
        head(y, training=False),
        tf.clip_by_value(y, -0.5, 0.5),
        tf.nn.softmax(y),
        tf.nn.gelu(y),
        tf.stack([y, -y], axis=1),
        tf.split(image, [3, 5], axis=1)[1],
        tf.pad(tf.transpose(image, [0, 2, 1, 3]), [[0, 0], [1, 1], [2, 0], [0, 0]]),
        tf.matmul(image[:, 0], image[:, 1], transpose_b=True),
        tf.squeeze(tf.expand_dims(tf.square(y), 1), 1),
    ]
    return shaken(tf_keras.Model(image, outputs))


def test_a_tf_keras_model_is_made_flat():
    model = tf_keras_model()
    answer = open_in_memory(model, samples_for(model))
    assert not is_flat(model)
    assert is_flat(answer.model)
    assert not answer.rebuilt
    assert answer.max_abs_error <= 1e-6
    assert answer.output_names == tuple(model.output_names)
    assert answer.model.output_names == model.output_names


def test_a_layer_within_a_nested_tf_keras_model_is_named_where_two_part(monkeypatch):
    model = small(tf_keras, k2)
    copied = flat._copy_weights

    def nudged(operation: Any, layer: Any) -> None:
        copied(operation, layer)
        if operation.name == "inner":
            layer.set_weights([1.01 * one for one in layer.get_weights()])

    monkeypatch.setattr(flat, "_copy_weights", nudged)
    with pytest.raises(VerificationFailed, match=r"that differs is nested/inner \(Dense\)"):
        open_in_memory(model, samples_for(model))


def test_a_model_that_is_quantised_or_adapted_already_is_refused():
    model = sequential(k3.Dense(3, name="whole"), shape=(4,))
    model.get_layer("whole").quantize("int8")
    with pytest.raises(InputRefused, match=r"whole \(Dense: its weights are quantized already"):
        flatten(model)
    model = sequential(k3.Dense(3, name="adapted"), shape=(4,))
    model.get_layer("adapted").enable_lora(2)
    with pytest.raises(InputRefused, match=r"adapted \(Dense: .* lora_rank \(lora_rank=2\)"):
        flatten(model)


def test_bytes_as_inputs_are_cast_as_they_were():
    x = keras.Input((6, 6, 3), dtype="uint8", name="x")
    y = k3.Flatten()(ops.cast(x, "float32") / 255.0)
    z = k3.Flatten()(k3.Rescaling(1 / 255)(x))
    model = shaken(keras.Model(x, [k3.Dense(2)(y), k3.Dense(2)(z)]))
    rows = np.random.default_rng(0).integers(0, 256, (5, 6, 6, 3)).astype(np.uint8)
    answer = open_in_memory(model, {"x": rows})
    assert answer.model.inputs[0].dtype == tf.uint8
    assert answer.max_abs_error <= 1e-6


def test_a_layer_of_tf_keras_that_always_trains_is_named():
    x = tf_keras.Input((4,), name="x")
    model = tf_keras.Model(x, k2.Dropout(0.5, name="always")(tf.sin(x), training=True))
    with pytest.raises(InputRefused, match=r"for 1 of its layers: always \(Dropout: it is called"):
        flatten(model)


def test_a_tf_keras_model_of_other_floats_computes_in_float32():
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        x = tf_keras.Input(IMAGE, name="x")
        inner = tf_keras.Sequential([k2.Conv2D(3, 3), k2.Flatten(), k2.Dense(2)])
        model = tf_keras.Model(x, inner(x * 2.0))
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    answer = opened_with_noise(model)
    assert answer.max_abs_error <= 1e-6
    assert {layer.compute_dtype for layer in answer.model.layers} == {"float32"}


def test_a_normalisation_of_tf_keras_keeps_what_it_has_learnt():
    layer = k2.Normalization()
    layer.adapt(np.random.default_rng(0).normal(3, 2, (50, 8)))
    model = tf_keras.Sequential([tf_keras.Input((8,), name="x"), layer, k2.Dense(2)])
    answer = open_in_memory(model, samples_for(model))
    again = tf_keras.Model.from_config(answer.model.get_config())
    again.set_weights(answer.model.get_weights())
    x = samples_for(model)["x"]
    np.testing.assert_array_equal(again(x), model(x))


@pytest.fixture
def place(tmp_path) -> Path:
    """A directory with samples of 8 numbers for an input "x"."""
    rows = np.random.default_rng(4).normal(size=(20, 8)).astype(np.float32)
    write_samples(Samples({"x": rows}, None, "rows"), tmp_path / "samples")
    return tmp_path


def small(of: Any, layers: Any) -> Any:
    inside = [layers.Dense(4, name="inner"), layers.BatchNormalization()]
    inner = of.Sequential(inside, name="nested")
    x = of.Input((8,), name="x")
    return shaken(of.Model(x, layers.Dense(2, name="out")(inner(x))))


@pytest.mark.parametrize(
    ("of", "layers", "name", "kind"),
    [
        (keras, k3, "m.keras", "keras"),
        (keras, k3, "m.h5", "hdf5"),
        (tf_keras, k2, "m.keras", "keras"),
        (tf_keras, k2, "m.h5", "hdf5"),
        (tf_keras, k2, "m", "saved_model"),
    ],
)
def test_a_model_file_is_opened(place, of, layers, name, kind):
    model = small(of, layers)
    model.save(place / name)
    answer = open_for_qat(str(place / name), kind, str(place / "samples"))
    assert answer.rebuilt == (of is keras)
    assert is_flat(answer.model)
    assert answer.input_names == ("x",)
    assert answer.output_names == ("out",)
    x = np.ones((1, 8), np.float32)
    np.testing.assert_allclose(answer.model(x), model(x), atol=1e-5)


def refused(place: Path, name: str, kind: Any) -> InputRefused:
    with pytest.raises(InputRefused) as error:
        open_for_qat(str(place / name), kind, str(place / "samples"))
    return error.value


def test_a_saved_model_without_keras_is_refused_and_the_file_beside_it_named(place):
    model = small(tf_keras, k2)
    export_inference(model, str(place / "m" / "1"))
    plain = refused(place, "m/1", "saved_model")
    assert "is a SavedModel without its Keras layers" in plain.message
    assert "saved with model.save('NAME.keras')" in plain.hint
    model.save(place / "m.keras")
    assert f"{place / 'm.keras'}" in refused(place, "m/1", "saved_model").hint
    model.save(place / "m" / "1.keras")
    assert f"{place / 'm' / '1.keras'}" in refused(place, "m/1", "saved_model").hint
    # A .tflite of the same name, too; and an export of Keras 3 has no layers in it either.
    lite = refused(place, "m.tflite", "tflite")
    assert "is a .tflite" in lite.message
    assert f"{place / 'm.keras'}" in lite.hint
    small(keras, k3).export(place / "k3", verbose=False)
    assert "without its Keras layers" in refused(place, "k3", "saved_model").message


def test_code_in_a_saved_model_is_refused_before_it_is_loaded(place, monkeypatch):
    model = tf_keras.Sequential([tf_keras.Input((8,), name="x"), k2.Lambda(lambda x: x + 1)])
    model.save(place / "code")
    monkeypatch.setattr(tf_keras.models, "load_model", None)
    assert "has a Lambda layer" in refused(place, "code", "saved_model").message
    (place / "code" / "keras_metadata.pb").write_bytes(b"\x0a\xff\xff no message")
    assert "cannot be read" in refused(place, "code", "saved_model").message


TRAINED_QUANTISED = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import keras, numpy as np, tensorflow as tf
from edgeconv.tf.qat.annotate import annotate
from edgeconv.tf.qat.opened import open_in_memory
from edgeconv.types import Qat
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
layers = keras.layers
x = keras.Input((12, 12, 3), name="x")
y = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x)))
inner = keras.Sequential([layers.DepthwiseConv2D(3, padding="same"), layers.BatchNormalization()])
model = keras.Model(x, layers.Dense(2, name="d")(keras.ops.mean(y + inner(y), axis=(1, 2))))
rows = np.random.default_rng(0).normal(size=(16, 12, 12, 3)).astype("float32")
answer = open_in_memory(model, {"x": rows})
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
before = answer.model(rows)
with strategy.scope():
    assert strategy.num_replicas_in_sync == 2
    trained, _ = annotate(answer.model, Qat())
    trained.compile("sgd", "mse")
trained.fit(rows, np.zeros((16, 2), "float32"), batch_size=8, epochs=1, verbose=0)
print("trained", np.abs(before - answer.model(rows)).max())
"""


@pytest.mark.slow
def test_a_rebuilt_model_takes_quantisation_and_trains_on_two_devices():
    pytest.importorskip("tensorflow_model_optimization")
    done = captured([sys.executable, "-c", TRAINED_QUANTISED])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "trained 0.0"


REAL = (
    "hand_gesture/keypoint_classifier.hdf5",
    "hand_gesture/point_history_classifier.hdf5",
    "legacy_keras_h5/fer2013_mini_XCEPTION.102-0.66.hdf5",
    "legacy_keras_h5/tiny_XCEPTION_KDEF.hdf5",
)


@pytest.mark.parametrize("name", REAL)
def test_a_trained_model_of_keras_2_is_opened(tmp_path, name):
    path = SHARED / name
    if not path.exists():
        pytest.skip("the data sets are not beside the checkout")
    model, _ = load(str(path), "hdf5")
    write_samples(Samples(samples_for(model, 16), None, "noise"), tmp_path / "samples")
    answer = open_for_qat(str(path), "hdf5", str(tmp_path / "samples"))
    assert answer.max_abs_error <= 1e-5
    assert is_flat(answer.model)
    assert answer.model.count_params() == model.count_params()


ARCHITECTURES = {
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "EfficientNetB0": 32,
    "ResNet50": 32,
    "DenseNet121": 32,
    "MobileNet": 32,
    "NASNetMobile": 32,
    "InceptionV3": 96,
    "EfficientNetV2B0": 32,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_published_architecture_is_rebuilt(name):
    size = ARCHITECTURES[name]
    make = getattr(keras.applications, name)
    model = make(weights=None, include_top=False, pooling="avg", input_shape=(size, size, 3))
    for layer in model._flatten_layers():
        if isinstance(layer, k3.BatchNormalization):
            layer.moving_mean.assign(np.linspace(-0.1, 0.1, layer.moving_mean.shape[0]))
            layer.moving_variance.assign(np.linspace(0.5, 2, layer.moving_mean.shape[0]))
    (given,) = [one._keras_history[0].name for one in model.inputs]
    answer = open_in_memory(model, {given: images(4, size)})
    assert answer.max_abs_error <= 1e-5
    assert is_flat(answer.model)


def test_a_published_backbone_under_a_head_is_rebuilt():
    backbone = keras.applications.MobileNetV2(
        weights=None, include_top=False, alpha=0.35, input_shape=(SIZE, SIZE, 3)
    )
    backbone.trainable = False
    x = keras.Input((SIZE, SIZE, 3), name="photo")
    y = backbone(keras.applications.mobilenet_v2.preprocess_input(x), training=False)
    y = k3.Dense(5, activation="softmax", name="head")(k3.GlobalAveragePooling2D()(y))
    answer = open_in_memory(keras.Model(x, y), {"photo": images(4, SIZE)})
    assert answer.max_abs_error <= 1e-5
    assert is_flat(answer.model)
    assert [len(layer.trainable_weights) > 0 for layer in answer.model.layers[-1:]] == [True]
    assert "frozen in the model, and so in training" in answer.notes[0]
