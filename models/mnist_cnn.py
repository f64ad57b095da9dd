"""A CNN for handwritten digits of 28x28 pixels, in 10 classes: MNIST.

The network, optimizer and batch of TensorFlow's tutorial on training with several workers
("Custom training loop with Keras and MultiWorkerMirroredStrategy"), but with probabilities
as its output.
"""

from pathlib import Path
from typing import Any

from edgeconv.models import Data

INPUT_NAME = "image"
OUTPUT_NAME = "probabilities"
CLASSES = 10
SIDE = 28
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 3
GLOBAL_BATCH = 128
LEARNING_RATE = 1e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 28, 28) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    image = layers.Input((SIDE, SIDE), name=INPUT_NAME)
    x = layers.Reshape((SIDE, SIDE, 1))(image)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.Flatten()(x)
    x = layers.Dense(128, activation="relu")(x)
    return Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def optimizer(learning_rate: float, steps: int, replicas: int) -> Any:  # noqa: ARG001
    """RMSprop at a constant rate, for any steps and replicas."""
    from tf_keras.optimizers import RMSprop

    return RMSprop(learning_rate)


def data(location: str | None = None) -> Data:
    """MNIST's images as float32 (n, 28, 28) in [0, 1], in the order of the file.

    `location` is an .npz in Keras' layout; None: the one that Keras has downloaded.
    """
    from edgeconv.models import archives

    path = archives.keras_datasets() / "mnist.npz" if location is None else Path(location)
    if location is None and not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: tf_keras.datasets.mnist.load_data() downloads it; "
            "or give an mnist.npz that you have"
        )
    return archives.images_of(path, INPUT_NAME, (SIDE, SIDE), CLASSES)
