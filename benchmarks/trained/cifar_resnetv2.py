"""A residual network that normalizes before each convolution, for images of 32x32 pixels.

K. He et al., "Identity Mappings in Deep Residual Networks" (2016): six blocks of 16, 24 and 32
filters. The sums of its blocks have neither normalization nor activation, so that their ranges
grow from block to block. A module for `edgeconv train`; its data are those of `cifar_mobilenet`.
"""

from typing import Any

from edgeconv.models import Data, cifar_mobilenet

INPUT_NAME = "image"
OUTPUT_NAME = "probabilities"
CLASSES = 10
SHAPE = (32, 32, 3)
# Filters and stride of each residual block.
BLOCKS = ((16, 1), (16, 1), (24, 2), (24, 1), (32, 2), (32, 1))
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 20
GLOBAL_BATCH = 64
LEARNING_RATE = 5e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    image = layers.Input(SHAPE, name=INPUT_NAME)
    # It passes images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    x = layers.Conv2D(BLOCKS[0][0], 3, strides=2, padding="same")(x)
    for filters, stride in BLOCKS:
        x = _residual(x, filters, stride)
    x = layers.GlobalAveragePooling2D()(_activated(x))
    return Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def _residual(x: Any, filters: int, stride: int) -> Any:
    from tf_keras import layers

    before = _activated(x)
    inner = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(before)
    inner = layers.Conv2D(filters, 3, padding="same")(_activated(inner))
    passed = x if stride == 1 else layers.Conv2D(filters, 1, strides=stride)(before)
    return layers.Add()([inner, passed])


def _activated(x: Any) -> Any:
    from tf_keras import layers

    # The running averages follow a short training only with less inertia than the default.
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def data(location: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order."""
    return cifar_mobilenet.data(location)
