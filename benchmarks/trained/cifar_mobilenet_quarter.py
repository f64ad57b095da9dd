"""MobileNetV1 at a quarter of its width, for colour images of 32x32 pixels in 10 classes.

A. Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications" (2017), as tf_keras.applications has it, trained from nothing. A module for
`edgeconv train`; its data are those of `cifar_mobilenet`.
"""

from typing import Any

from edgeconv.models import Data, cifar_mobilenet

INPUT_NAME = "image"
SHAPE = (32, 32, 3)
CLASSES = 10
WIDTH = 0.25
# By how much of its size an image is moved at most in training: 4 of 32 pixels.
MOVED = 0.125
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 40
GLOBAL_BATCH = 64
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import applications, layers

    image = layers.Input(SHAPE, name=INPUT_NAME)
    # Both pass images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    x = layers.RandomTranslation(MOVED, MOVED, fill_mode="constant", seed=0)(x)
    return applications.MobileNet(
        input_tensor=x, alpha=WIDTH, weights=None, classes=CLASSES, dropout=0.1
    )


def data(place: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order."""
    return cifar_mobilenet.data(place)
