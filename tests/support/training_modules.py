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
