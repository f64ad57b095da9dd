"""MobileNetV2 at 0.35 of its width, for color images of 32x32 pixels in 10 classes.

M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018), as
tf_keras.applications has it but for its first layer, which keeps all pixels of images as small as
these; trained from nothing. A module for `edgeconv train`; its data are those of `cifar_mobilenet`.
"""

from typing import Any

from edgeconv.models import Data, cifar_mobilenet

INPUT_NAME = "image"
SHAPE = (32, 32, 3)
CLASSES = 10
WIDTH = 0.35
FIRST_LAYER = "Conv1"
# By how much of its size an image is moved at most in training: 4 of 32 pixels.
MOVED = 0.125
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 20
GLOBAL_BATCH = 64
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import applications, layers, models

    image = layers.Input(SHAPE, name=INPUT_NAME)
    # Both pass images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    x = layers.RandomTranslation(MOVED, MOVED, fill_mode="constant", seed=0)(x)
    halved = applications.MobileNetV2(input_tensor=x, alpha=WIDTH, weights=None, classes=CLASSES)
    return models.clone_model(halved, clone_function=_for_small_images)


def _for_small_images(layer: Any) -> Any:
    """A new layer like this one, but for the stride of the first convolution."""
    from tf_keras import layers

    config = layer.get_config()
    if layer.name == FIRST_LAYER:
        config["strides"] = 1
    if isinstance(layer, layers.BatchNormalization):
        # The running averages follow a short training only with less inertia.
        config["momentum"] = 0.9
    return type(layer).from_config(config)


def data(location: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order."""
    return cifar_mobilenet.data(location)
