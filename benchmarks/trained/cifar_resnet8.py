"""The ResNet-8 of MLPerf Tiny, for colour images of 32x32 pixels in the classes of CIFAR-10.

C. Banbury et al., "MLPerf Tiny Benchmark" (2021), section 4.1: three residual blocks of 16, 32 and
64 filters, after K. He et al., "Deep Residual Learning for Image Recognition" (2016). A module
for `edgeconv train`; its data are those of `cifar_mobilenet`.
"""

from typing import Any

from edgeconv.models import Data, cifar_mobilenet

INPUT_NAME = "image"
OUTPUT_NAME = "probabilities"
CLASSES = 10
SHAPE = (32, 32, 3)
# Filters and stride of each residual block.
BLOCKS = ((16, 1), (32, 2), (64, 2))
# By how much of its size an image is moved at most in training: 4 of 32 pixels.
MOVED = 0.125
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 36
GLOBAL_BATCH = 64
LEARNING_RATE = 5e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    image = layers.Input(SHAPE, name=INPUT_NAME)
    # Both pass images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    x = layers.RandomTranslation(MOVED, MOVED, fill_mode="constant", seed=0)(x)
    x = layers.ReLU()(_convolved(x, BLOCKS[0][0], 3, 1))
    for filters, stride in BLOCKS:
        x = _residual(x, filters, stride)
    x = layers.GlobalAveragePooling2D()(x)
    return Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def _residual(x: Any, filters: int, stride: int) -> Any:
    from tf_keras import layers

    inner = layers.ReLU()(_convolved(x, filters, 3, stride))
    inner = _convolved(inner, filters, 3, 1)
    passed = x if stride == 1 else layers.Conv2D(filters, 1, strides=stride)(x)
    return layers.ReLU()(layers.Add()([inner, passed]))


def _convolved(x: Any, filters: int, size: int, stride: int) -> Any:
    from tf_keras import layers

    x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
    # The running averages follow a short training only with less inertia than the default.
    return layers.BatchNormalization(momentum=0.9)(x)


def data(place: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order."""
    return cifar_mobilenet.data(place)
