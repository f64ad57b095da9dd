"""MobileNetV1 at a quarter of its width, for photos of five flowers.

A. Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications" (2017), as tf_keras.applications has it, trained from nothing on 96x96 pixels. A
module for `edgeconv train`, which names the directory with flowers128.tar as its data.
"""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data

INPUT_NAME = "image"
CLASSES = ("daisy", "dandelion", "rose", "sunflower", "tulip")
PIXELS = 96
WIDTH = 0.25
TEST_SHARE = 0.2
SPLIT_SEED = 0
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 90
GLOBAL_BATCH = 32
LEARNING_RATE = 4e-3


def build() -> Any:
    """A new tf_keras model: float32 (batch, 96, 96, 3) in [-1, 1] to probabilities (batch, 5)."""
    from tf_keras import applications, layers

    image = layers.Input((PIXELS, PIXELS, 3), name=INPUT_NAME)
    # Both pass images on as they are outside training.
    x = layers.RandomFlip("horizontal", seed=0)(image)
    x = layers.RandomTranslation(0.1, 0.1, fill_mode="nearest", seed=0)(x)
    return applications.MobileNet(
        input_tensor=x, alpha=WIDTH, weights=None, classes=len(CLASSES), dropout=0.1
    )


def data(place: str | None = None) -> Data:
    """Photos as float32 (n, 96, 96, 3) in [-1, 1] and the number of the flower, int64 (n,).

    A fifth of them, drawn with a fixed seed, is for testing. `place` has flowers128.tar, with
    flowers/CLASS/NAME.jpg in it. Raises `FileNotFoundError` without it.
    """
    images, labels = read_photos(Path(place or ".") / "flowers128.tar")
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    return Data(
        {INPUT_NAME: images[train]}, labels[train], {INPUT_NAME: images[test]}, labels[test]
    )


def read_photos(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All photos of the archive and their labels, in the order of their names."""
    from PIL import Image

    images, labels = [], []
    with tarfile.open(path) as archive:
        files = (one for one in archive.getmembers() if one.isfile() and one.name.endswith(".jpg"))
        for member in sorted(files, key=lambda one: one.name):
            content = archive.extractfile(member)
            assert content is not None, "it is a file"
            photo = Image.open(io.BytesIO(content.read())).convert("RGB")
            images.append(np.asarray(photo.resize((PIXELS, PIXELS), Image.Resampling.BILINEAR)))
            labels.append(CLASSES.index(member.name.split("/")[-2]))
    scaled = np.stack(images).astype(np.float32) / np.float32(127.5) - np.float32(1)
    return scaled, np.array(labels, np.int64)
