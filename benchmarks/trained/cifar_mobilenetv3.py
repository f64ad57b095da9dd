"""A small MobileNetV3, with squeeze-and-excitation and hard swish, for images of 32x32 pixels.

A. Howard et al., "Searching for MobileNetV3" (2019), "small" at half of its width, as
tf_keras.applications has it, trained from nothing. A module for `edgeconv train`; its data are
those of `cifar_mobilenet`.
"""

from typing import Any

from edgeconv.models import Data, cifar_mobilenet

INPUT_NAME = "image"
SHAPE = (32, 32, 3)
CLASSES = 10
WIDTH = 0.5
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 15
GLOBAL_BATCH = 64
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, applications, layers

    image = layers.Input(SHAPE, name=INPUT_NAME)
    # It passes images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    features = applications.MobileNetV3Small(
        input_tensor=x,
        alpha=WIDTH,
        weights=None,
        include_top=False,
        pooling="avg",
        include_preprocessing=False,
    )
    for layer in features.layers:
        if isinstance(layer, layers.BatchNormalization):
            # The running averages follow a short training only with less inertia.
            layer.momentum = 0.9
    head = layers.Dense(CLASSES, activation="softmax", name="probabilities")
    return Model(image, head(layers.Dropout(0.1)(features.output)))


def data(location: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order."""
    return cifar_mobilenet.data(location)
