"""An autoencoder that takes the noise from digits: convolutions down, transposed ones up.

A module for `edgeconv train`; its digits are those of MNIST.
"""

from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data, archives
from numpy.typing import NDArray

INPUT_NAME = "noisy"
TRAIN_SAMPLES, TEST_SAMPLES = 12_000, 2_000
NOISE = 0.5
LOSS = "binary_crossentropy"
EPOCHS = 4
GLOBAL_BATCH = 64
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 28, 28, 1) to the same in [0, 1], (batch, 784)."""
    from tf_keras import Model, layers

    noisy = layers.Input((28, 28, 1), name=INPUT_NAME)
    x = noisy
    for filters in (16, 24):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    for filters in (24, 16):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x)
    return Model(noisy, layers.Flatten(name="clean")(x))


def data(location: str | None = None) -> Data:
    """Digits with noise, float32 (n, 28, 28, 1), and without, float32 (n, 784) in [0, 1].

    `location` is MNIST as an .npz in Keras' layout. Raises `FileNotFoundError` without it.
    """
    digits = archives.read_npz(Path(location or "mnist.npz"), ("x_train", "x_test"))
    clean = digits["x_train"][:TRAIN_SAMPLES], digits["x_test"][:TEST_SAMPLES]
    train, test = (part.astype(np.float32) / np.float32(255) for part in clean)
    x_train, x_test = with_noise(train, seed=0), with_noise(test, seed=1)
    shape = (-1, 28 * 28)
    return Data(
        {INPUT_NAME: x_train}, train.reshape(shape), {INPUT_NAME: x_test}, test.reshape(shape)
    )


def with_noise(images: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Images (n, 28, 28) with normal noise, cut to [0, 1]: float32 (n, 28, 28, 1)."""
    noise = np.random.default_rng(seed).normal(0, NOISE, images.shape).astype(np.float32)
    noisy: NDArray[np.float32] = np.clip(images + noise, 0, 1)[..., np.newaxis]
    return noisy


def pixels_right(labels: Any, outputs: Any) -> Any:
    """Which share of the pixels is on the right side of one half: (batch,)."""
    import tensorflow as tf

    is_right = tf.equal(labels > 0.5, outputs > 0.5)
    return tf.reduce_mean(tf.cast(is_right, tf.float32), axis=1)


def score(outputs: dict[str, NDArray[Any]], labels: NDArray[Any]) -> NDArray[np.float64]:
    """`pixels_right` as a metric of `edgeconv bench`: (n,)."""
    (output,) = outputs.values()
    is_right = (output > 0.5) == (labels > 0.5)
    return np.asarray(is_right.mean(axis=1), np.float64)


METRIC = pixels_right
