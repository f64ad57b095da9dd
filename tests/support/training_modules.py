"""Model modules for tests of the trainer, and what was trained of them."""

from __future__ import annotations

import zipfile
from io import BytesIO
from typing import TYPE_CHECKING

import h5py
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.types import TrainingRecord

# Without dropout, so that weights can be compared however the training was shared out; 100
# samples make 7 steps of 16, the last one filled up.
SMALL = """
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 2
GLOBAL_BATCH = 16
LEARNING_RATE = 1e-2


def build():
    from tf_keras import Model, layers

    x = layers.Input((4,), name="x")
    h = layers.Dense(8, activation="relu")(x)
    return Model(x, layers.Dense(3, activation="softmax", name="class")(h))


def data(place=None):
    import numpy as np
    from edgeconv.models import Data

    rng = np.random.default_rng(0)
    x = rng.standard_normal((130, 4)).astype("f")
    y = (x @ rng.standard_normal((4, 3))).argmax(1)
    return Data({"x": x[:100]}, y[:100], {"x": x[100:]}, y[100:])
"""


# With all that is kept for each worker: moving averages, random numbers, and a metric of its own.
NORMALIZED = """
LOSS = "sparse_categorical_crossentropy"
EPOCHS, GLOBAL_BATCH, LEARNING_RATE = 2, 16, 1e-2


def METRIC(labels, outputs):
    import tensorflow as tf

    best = tf.math.top_k(outputs, 2).indices
    return tf.reduce_any(tf.equal(tf.cast(labels, tf.int32)[:, tf.newaxis], best), axis=-1)


def build():
    import LIBRARY
    from LIBRARY import layers

    x = LIBRARY.Input((4,), name="part")
    h = layers.BatchNormalization()(layers.Dense(16)(x))
    h = layers.Dropout(0.2)(layers.ReLU()(h))
    return LIBRARY.Model(x, layers.Dense(3, activation="softmax", name="kind")(h))


def data(place=None):
    import numpy as np
    from edgeconv.models import Data

    random = np.random.default_rng(0)
    y = random.integers(0, 3, 140)
    x = (random.normal(size=(140, 4)) + 2 * np.eye(4)[y]).astype("f")
    return Data({"part": x[:100]}, y[:100], {"part": x[100:]}, y[100:])
"""


def normalized(directory: Path, library: str) -> str:
    """The file of the module `NORMALIZED`, built with keras or tf_keras."""
    path = directory / f"normalized_{library}.py"
    path.write_text(NORMALIZED.replace("LIBRARY", library), encoding="utf-8")
    return str(path)


def written(directory: Path, name: str, *replaced: tuple[str, str], added: str = "") -> str:
    """The file of a module like `SMALL`, with parts of it replaced or something added."""
    text = SMALL
    for old, new in replaced:
        assert old in text, old
        text = text.replace(old, new)
    path = directory / f"{name}.py"
    path.write_text(text + added, encoding="utf-8")
    return str(path)


def weights_of(record: TrainingRecord) -> list[np.ndarray]:
    """The weights in the Keras file, in the order of their names."""
    with zipfile.ZipFile(record.keras_file) as archive:
        names = [name for name in archive.namelist() if name.endswith(".weights.h5")]
        stored = BytesIO(archive.read(names[0]))
    found: dict[str, np.ndarray] = {}
    with h5py.File(stored) as file:
        file.visititems(
            lambda name, one: (
                found.update({name: one[()]}) if isinstance(one, h5py.Dataset) else None
            )
        )
    assert found
    return [found[name] for name in sorted(found)]


def assert_same_weights(
    first: TrainingRecord, second: TrainingRecord, *, rtol: float = 1e-5
) -> None:
    """To rounding: the order of additions is not the same in every distribution."""
    pairs = list(zip(weights_of(first), weights_of(second), strict=True))
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
    assert any(np.abs(one).max() > 0.1 for one, _ in pairs)
