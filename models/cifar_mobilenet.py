"""A small MobileNet for color images of 32x32 pixels, in the 10 classes of CIFAR-10.

Depthwise-separable blocks with batch normalization and ReLU6, as in A. Howard et al.,
"MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications" (2017),
section 3; fewer and narrower, since the images are small.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.models import Data
    from numpy.typing import NDArray

INPUT_NAME = "image"
OUTPUT_NAME = "probabilities"
CLASSES = 10
SHAPE = (32, 32, 3)
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 8
GLOBAL_BATCH = 64
LEARNING_RATE = 5e-3
FIRST_FILTERS = 32
# Filters and stride of each depthwise-separable block.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))
TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILE = "test_batch"


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 32, 32, 3) in [0, 1] to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    image = layers.Input(SHAPE, name=INPUT_NAME)
    x = layers.Conv2D(FIRST_FILTERS, 3, padding="same", use_bias=False)(image)
    x = _normalized(x)
    for filters, stride in BLOCKS:
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = _normalized(x)
        x = layers.Conv2D(filters, 1, use_bias=False)(x)
        x = _normalized(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    return Model(image, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def _normalized(x: Any) -> Any:
    from tf_keras import layers

    # The running averages follow a short training only with less inertia than the default.
    return layers.ReLU(6.0)(layers.BatchNormalization(momentum=0.9)(x))


def data(location: str | None = None) -> Data:
    """Images as float32 (n, 32, 32, 3) in [0, 1] and labels of 0 to 9, in the files' order.

    `location` is an .npz in Keras' layout, a directory with one such file, or a directory with
    the batches of CIFAR-10's "python version"; None: those that Keras has downloaded.
    """
    from edgeconv.models import archives

    path = _downloaded() if location is None else Path(location)
    if path.is_dir() and (path / TEST_FILE).is_file():
        return archives.as_images(_batches(path), path, INPUT_NAME, SHAPE, CLASSES)
    return archives.images_of(_only_npz(path), INPUT_NAME, SHAPE, CLASSES)


def _downloaded() -> Path:
    """The directory to which Keras 3 or tf_keras has downloaded CIFAR-10."""
    from edgeconv.models import archives

    name = "cifar-10-batches-py"
    datasets: Path = archives.keras_datasets()
    paths = [datasets / f"{name}-target" / name, datasets / name]
    for path in paths:
        if (path / TEST_FILE).is_file():
            return path
    raise FileNotFoundError(
        f"{paths[-1]} is missing: tf_keras.datasets.cifar10.load_data() downloads it; "
        "or give a directory that has CIFAR-10"
    )


def _only_npz(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.npz"))
    if not files:
        raise FileNotFoundError(f"{path} has neither {TEST_FILE} of CIFAR-10 nor an .npz file")
    if len(files) > 1:
        raise ValueError(f"{path} has {len(files)} .npz files; name the one to use")
    return files[0]


def _batches(directory: Path) -> dict[str, NDArray[Any]]:
    """The arrays of CIFAR-10's own files, by Keras' names."""
    import numpy as np

    train = [_batch(directory / name) for name in TRAIN_FILES]
    x_test, y_test = _batch(directory / TEST_FILE)
    x_train, y_train = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _batch(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images, uint8 (n, 32, 32, 3), and labels, integers (n,), of one pickled file."""
    import numpy as np
    from edgeconv.models import archives

    batch = archives.unpickled_arrays(path)
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise ValueError(f"{path} is not a batch of CIFAR-10: it has no data and labels")
    pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{path} is not a batch of CIFAR-10: its labels are not numbers")
    if pixels.ndim != 2 or pixels.shape[1] != np.prod(SHAPE):
        raise ValueError(f"{path} has images of {pixels.shape[1:]} values, where 3072 are needed")
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels
