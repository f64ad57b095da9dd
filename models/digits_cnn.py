"""A small CNN for the handwritten digits that scikit-learn carries: 8x8 pixels, 10 classes.

It trains in seconds on a CPU, and has each kind of layer that quantization treats differently:
convolution, depthwise convolution and fully connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from edgeconv.models import Data
    from numpy.typing import NDArray

INPUT_NAME = "image"
OUTPUT_NAME = "probabilities"
CLASSES = 10
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 15
GLOBAL_BATCH = 32
LEARNING_RATE = 5e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 8, 8, 1) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    image = layers.Input((8, 8, 1), name=INPUT_NAME)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)
    x = layers.Conv2D(48, 1, activation="relu")(x)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.5)(x)
    x = layers.Dense(32, activation="relu")(x)
    return Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def data(location: str | None = None) -> Data:
    """The 1,797 digits as float32 (n, 8, 8, 1) in [0, 1], a third of each class for testing.

    Raises `ValueError` for a location: they come with scikit-learn.
    """
    import numpy as np
    from edgeconv.models import Data
    from sklearn.datasets import load_digits

    if location is not None:
        raise ValueError("digits_cnn has its samples from scikit-learn, and reads no other data")
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    labels = digits.target.astype(np.int64)
    test = held_out(labels)
    return Data(
        x_train={INPUT_NAME: images[~test]},
        y_train=labels[~test],
        x_test={INPUT_NAME: images[test]},
        y_test=labels[test],
    )


def held_out(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The rows for testing, bool (n,): of each class the third, the sixth, and so on.

    Without random numbers, the split is the same in every version of every library.
    """
    import numpy as np

    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[2::3]] = True
    return test
