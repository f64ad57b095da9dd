"""A detector: which digit there is in an image of 48x48 pixels, and where.

Its output joins two heads, as detectors' outputs do: the corners of the box in pixels, and the
scores of the classes between 0 and 1. One scale for both leaves little of the scores. A module for
`edgeconv train`; its digits are those of MNIST.
"""

from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data, archives
from numpy.typing import NDArray

Samples = tuple[NDArray[np.float32], NDArray[np.float32]]

INPUT_NAME = "image"
CLASSES = 10
PIXELS = 48
TRAIN_SAMPLES, TEST_SAMPLES = 12_000, 4_000
# Next to the digit there are this many pieces of others, of so many pixels.
PIECES, PIECE = 3, 8
LEAST_OVERLAP = 0.5
EPOCHS = 6
GLOBAL_BATCH = 64
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 48, 48, 1) to float32 (batch, 14).

    Those are the left, top, right and bottom edge in pixels, and ten scores.
    """
    from tf_keras import Model, layers

    image = layers.Input((PIXELS, PIXELS, 1), name=INPUT_NAME)
    x = image
    for filters, pool in ((12, 2), (24, 2), (32, 2), (48, 1)):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        # The running averages follow a short training only with less inertia than the default.
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        x = layers.MaxPooling2D(pool)(x) if pool > 1 else x
    places = layers.Conv2D(16, 1, activation="relu")(x)
    box = layers.Dense(4, name="box")(layers.Flatten()(places))
    # Where the digit is does not matter for what it is.
    content = layers.Flatten()(layers.MaxPooling2D(PIXELS // 8)(x))
    scores = layers.Dense(CLASSES, activation="softmax", name="scores")(content)
    box = layers.Rescaling(float(PIXELS))(box)
    return Model(image, layers.Concatenate(name="detection")([box, scores]))


def data(location: str | None = None) -> Data:
    """Images, float32 (n, 48, 48, 1) in [0, 1], and labels, float32 (n, 5): the box and the digit.

    `location` is MNIST as an .npz in Keras' layout. Raises `FileNotFoundError` without it.
    """
    digits = archives.read_npz(Path(location or "mnist.npz"), archives.PARTS)
    x_train, y_train = scenes(digits["x_train"], digits["y_train"], TRAIN_SAMPLES, seed=0)
    x_test, y_test = scenes(digits["x_test"], digits["y_test"], TEST_SAMPLES, seed=1)
    return Data({INPUT_NAME: x_train}, y_train, {INPUT_NAME: x_test}, y_test)


def scenes(digits: NDArray[Any], labels: NDArray[Any], count: int, seed: int) -> Samples:
    """Images with one of the digits, uint8 (n, 28, 28), each, and their boxes and digits."""
    draw = np.random.default_rng(seed)
    images = np.zeros((count, PIXELS, PIXELS), np.float32)
    targets = np.empty((count, 5), np.float32)
    for index, chosen in enumerate(draw.choice(len(digits), count, replace=False)):
        for piece in draw.choice(len(digits), PIECES):
            y, x = draw.integers(0, PIXELS - PIECE, 2)
            images[index, y : y + PIECE, x : x + PIECE] = digits[piece, 10:18, 10:18]
        digit = digits[chosen]
        y, x = draw.integers(0, PIXELS - len(digit), 2)
        part = images[index, y : y + len(digit), x : x + len(digit)]
        np.maximum(part, digit, out=part)
        rows, columns = (np.flatnonzero(digit.any(axis=axis)) for axis in (1, 0))
        box = (x + columns[0], y + rows[0], x + columns[-1] + 1, y + rows[-1] + 1)
        targets[index] = (*box, labels[chosen])
    images /= 255
    return images[..., np.newaxis], targets


def detection_loss(labels: Any, outputs: Any) -> Any:
    """Squared errors of the box in parts of the image, and the cross-entropy: (batch,)."""
    import tensorflow as tf

    distance = (labels[:, :4] - outputs[:, :4]) / PIXELS
    box = tf.reduce_sum(tf.square(distance), axis=1)
    digits = tf.one_hot(tf.cast(labels[:, 4], tf.int32), CLASSES)
    own = tf.reduce_sum(digits * outputs[:, 4:], axis=1)
    # Not clipped: a score of nearly nothing still has a gradient.
    return 20.0 * box - tf.math.log(own + 1e-6)


def detected(labels: Any, outputs: Any) -> Any:
    """Whether the digit is right and the box overlaps by half: (batch,)."""
    import tensorflow as tf

    return tf.numpy_function(right, [outputs, labels], tf.float32)


def right(outputs: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float32]:
    """1 where the digit is right and the boxes' intersection is half of their union: (n,)."""
    here, there = outputs[:, :4], labels[:, :4]
    low, high = np.maximum(here[:, :2], there[:, :2]), np.minimum(here[:, 2:], there[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    areas = [(box[:, 2:] - box[:, :2]).prod(axis=1) for box in (here, there)]
    overlaps = shared >= LEAST_OVERLAP * (areas[0] + areas[1] - shared)
    is_right = overlaps & (outputs[:, 4:].argmax(axis=1) == labels[:, 4])
    return np.asarray(is_right, np.float32)


def score(outputs: dict[str, NDArray[Any]], labels: NDArray[Any]) -> NDArray[np.float32]:
    """`right` as a metric of `edgeconv bench`."""
    (output,) = outputs.values()
    return right(output, labels)


LOSS = detection_loss
METRIC = detected
