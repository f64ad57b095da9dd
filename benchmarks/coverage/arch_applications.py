"""The image classifiers that come with Keras, with random weights and ten classes."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.drawn import COUNT, images, keep
from benchmarks.coverage.settled import flat, library_of, save, settle

CLASSES = 10

# Name in `applications` to the side of its images in pixels, and what its pixels lie within:
# where a model scales by itself it takes 0..255. The sides are the smallest that leave its
# last stage more than one pixel, so that the reference kernels of int16x8 take seconds.
SIZES: dict[str, tuple[int, tuple[float, float]]] = {
    "MobileNet": (96, (-1, 1)),
    "MobileNetV2": (96, (-1, 1)),
    "MobileNetV3Small": (96, (0, 255)),
    "MobileNetV3Large": (96, (0, 255)),
    "EfficientNetB0": (96, (0, 255)),
    "EfficientNetV2B0": (96, (0, 255)),
    "ResNet50": (64, (-1, 1)),
    "InceptionV3": (80, (-1, 1)),
    "DenseNet121": (64, (-1, 1)),
    "NASNetMobile": (64, (-1, 1)),
    "Xception": (80, (-1, 1)),
    "ConvNeXtTiny": (64, (0, 255)),
}


def application(directory: Path, *, library: str, name: str, kind: str) -> Path:
    """The application `name` of a Keras, saved as `kind`, and its samples."""
    side, (low, high) = SIZES[name]
    pixels = low + (high - low) * images(COUNT, side, side)
    keras = library_of(library)
    model = getattr(keras.applications, name)(
        input_shape=(side, side, 3),
        input_tensor=keras.layers.Input((side, side, 3), name="image"),
        weights=None,
        classes=CLASSES,
    )
    _wake_layer_scales(model)
    keep(directory, image=pixels)
    return save(keras, settle(keras, model, pixels), directory, kind)


def _wake_layer_scales(model: Any) -> None:
    """ConvNeXt starts with its blocks scaled to a millionth; training raises them."""
    rng = np.random.default_rng(10)
    for layer in flat(model):
        if type(layer).__name__ == "LayerScale":
            layer.set_weights([rng.uniform(0.1, 0.5, w.shape) for w in layer.get_weights()])
