"""A 1-D network on windows of 16 positions of a finger tip, for four gestures.

Each position comes with its difference from the one before, as sensors give an angle and its rate:
two of the four channels are several times smaller than the others. A module for `edgeconv train`,
which names the directory with point_history.csv of the hand gesture repository as its data.
"""

from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data
from numpy.typing import NDArray

INPUT_NAME = "window"
OUTPUT_NAME = "probabilities"
CLASSES = 4
STEPS = 16
CHANNELS = 4
TEST_SHARE = 0.25
SPLIT_SEED = 42
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 30
GLOBAL_BATCH = 32
LEARNING_RATE = 3e-3


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 16, 4) to probabilities (batch, 4)."""
    from tf_keras import Model, layers

    window = layers.Input((STEPS, CHANNELS), name=INPUT_NAME)
    x = layers.BatchNormalization(momentum=0.9)(window)
    for filters, stride in ((16, 1), (24, 2), (32, 2)):
        x = layers.SeparableConv1D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
        # The running averages follow a short training only with less inertia than the default.
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(x))
    return Model(window, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def data(location: str | None = None) -> Data:
    """Windows of x, y, dx and dy, float32 (n, 16, 4), and the gestures, int64 (n,).

    A quarter of them, drawn with a fixed seed, is for testing. Raises `FileNotFoundError` where
    `location` has no point_history.csv.
    """
    rows = np.loadtxt(Path(location or ".") / "point_history.csv", delimiter=",")
    windows, labels = windows_of(rows[:, 1:]), rows[:, 0].astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    return Data(
        {INPUT_NAME: windows[train]}, labels[train], {INPUT_NAME: windows[test]}, labels[test]
    )


def windows_of(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """Positions and differences, float32 (n, 16, 4), of rows x0, y0, x1, y1, ...: (n, 32)."""
    positions = rows.reshape(-1, STEPS, 2)
    rates = np.diff(positions, axis=1, prepend=positions[:, :1])
    return np.concatenate([positions, rates], axis=2).astype(np.float32)
