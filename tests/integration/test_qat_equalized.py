"""Channels of very different ranges are brought to like ones, and the model computes the same."""

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SHAPE = (8, 8, 3)


@pytest.fixture(scope="module")
def layers():
    import tf_keras

    return tf_keras.layers


def built(*middle, head):
    import tf_keras

    tf_keras.utils.set_random_seed(3)
    model = tf_keras.Sequential([tf_keras.layers.InputLayer(SHAPE), *middle, head])
    for layer in model.layers:
        # Batch normalisation that does something, and biases that are not zero.
        rng = np.random.default_rng(5)
        layer.set_weights([w + 0.3 * rng.random(w.shape) for w in layer.get_weights()])
    return model


def answers(model):
    return model(np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)).numpy()


def ranges_between(model, first, second):
    """The largest weight of each channel that one layer gives, and that the other takes."""
    kernel = model.get_layer(first).get_weights()[0]
    gives = np.abs(kernel).reshape(-1, kernel.shape[-1]).max(axis=0)
    kernel = model.get_layer(second).get_weights()[0]
    return gives, np.abs(kernel.reshape(-1, len(gives), kernel.shape[-1])).max(axis=(0, 2))


def spoilt(model, name, second, factor=100.0):
    """The same model, with every second channel between two layers times a factor."""
    layer, after = model.get_layer(name), model.get_layer(second)
    kernel, bias = layer.get_weights()
    factors = np.where(np.arange(len(bias)) % 2, factor, 1.0)
    layer.set_weights([kernel * factors, bias * factors])
    kernel, *others = after.get_weights()
    by_channel = kernel.reshape(-1, len(factors), kernel.shape[-1]) / factors[:, None]
    after.set_weights([by_channel.reshape(kernel.shape), *others])
    return model


def chains(layers):
    conv = {"padding": "same", "name": "one"}
    return {
        "conv to conv": (
            (layers.Conv2D(6, 3, activation="relu", **conv), layers.MaxPooling2D()),
            layers.Conv2D(4, 3, name="two"),
        ),
        "flattened to dense": (
            (layers.Conv2D(6, 3, **conv), layers.ReLU(), layers.Dropout(0.5), layers.Flatten()),
            layers.Dense(4, activation="softmax", name="two"),
        ),
        "dense to dense": (
            (layers.Flatten(), layers.Dense(10, name="one"), layers.Activation("relu")),
            layers.Dense(4, name="two"),
        ),
        "to depthwise": (
            (layers.Conv2D(6, 3, **conv), layers.ZeroPadding2D()),
            layers.DepthwiseConv2D(3, depth_multiplier=2, name="two"),
        ),
        "averaged": (
            (layers.Conv2D(6, 3, activation="relu", **conv), layers.GlobalAveragePooling2D()),
            layers.Dense(4, name="two"),
        ),
    }


@pytest.mark.parametrize(
    "chain", ["conv to conv", "flattened to dense", "dense to dense", "to depthwise", "averaged"]
)
def test_the_ranges_are_alike_after_it_and_the_answers_the_same(chain, layers):
    from edgeconv.tf.qat.equalized import equalize

    middle, head = chains(layers)[chain]
    model = spoilt(built(*middle, head=head), "one", "two")
    before = answers(model)
    assert equalize(model) == (("one", "two"),)
    np.testing.assert_allclose(answers(model), before, rtol=1e-4, atol=1e-5)
    gives, takes = ranges_between(model, "one", "two")
    np.testing.assert_allclose(gives / takes, np.exp(np.log(gives / takes).mean()), rtol=1e-3)
    assert equalize(model) == ()


def test_behind_a_batch_normalisation_its_factors_are_changed_and_no_kernel_before_it(layers):
    from edgeconv.tf.qat.equalized import equalize

    first = layers.Conv2D(6, 3, use_bias=False, name="one")
    norm, head = layers.BatchNormalization(name="norm"), layers.Conv2D(4, 1, name="two")
    model = built(first, norm, layers.ReLU(), head=head)
    gamma, beta, *statistics = norm.get_weights()
    factors = np.array([1, 100, 1, 1, 100, 1], np.float32)
    norm.set_weights([gamma * factors, beta * factors, *statistics])
    kernel, bias = head.get_weights()
    head.set_weights([kernel / factors[:, None], bias])
    before, own = answers(model), first.get_weights()[0]
    assert equalize(model) == (("one", "two"),)
    np.testing.assert_allclose(answers(model), before, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first.get_weights()[0], own)
    assert np.ptp(np.log(np.abs(norm.get_weights()[0]))) < np.log(100)


def test_a_model_without_such_channels_is_left_as_it_is(layers):
    from edgeconv.tf.qat.equalized import equalize

    middle, head = chains(layers)["conv to conv"]
    model = built(*middle, head=head)
    before = model.get_weights()
    assert equalize(model) == ()
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_does_not_commute_or_is_used_twice_is_left_alone(layers):
    import tf_keras

    from edgeconv.tf.qat.equalized import equalize

    bounded = built(
        layers.Conv2D(6, 3, name="one"), layers.ReLU(6.0), head=layers.Conv2D(4, 3, name="two")
    )
    assert equalize(spoilt(bounded, "one", "two")) == ()
    image = layers.Input(SHAPE)
    first = layers.Conv2D(6, 3, padding="same", name="one")(image)
    second = layers.Conv2D(6, 3, padding="same", name="two")(first)
    twice = tf_keras.Model(image, layers.Add()([first, second]))
    assert equalize(spoilt(twice, "one", "two")) == ()


def test_a_channel_that_is_all_zeros_is_no_error(layers):
    from edgeconv.tf.qat.equalized import equalize

    middle, head = chains(layers)["dense to dense"]
    model = spoilt(built(*middle, head=head), "one", "two")
    kernel, bias = model.get_layer("one").get_weights()
    kernel[:, 2] = 0
    model.get_layer("one").set_weights([kernel, bias])
    before = answers(model)
    assert equalize(model) == (("one", "two"),)
    np.testing.assert_allclose(answers(model), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normed", [False, True])
def test_the_offset_of_a_channel_that_died_in_training_does_not_grow(normed, layers):
    from edgeconv.tf.qat.equalized import equalize

    scaled = (layers.BatchNormalization(name="norm"),) if normed else ()
    first = layers.Conv2D(6, 3, name="one")
    model = built(first, *scaled, layers.ReLU(), head=layers.Conv2D(4, 1, name="two"))
    layer = scaled[0] if normed else first
    scales, offsets, *statistics = layer.get_weights()
    dead = np.where(np.arange(6) == 2, 1e-12, 1.0).astype(np.float32)
    offsets[2] = 3.78
    layer.set_weights([scales * dead, offsets, *statistics])
    before = answers(model)
    equalize(model)
    np.testing.assert_allclose(answers(model), before, rtol=1e-4, atol=1e-5)
    assert np.abs(layer.get_weights()[1]).max() <= 3.78 + 1e-5
