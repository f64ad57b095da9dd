"""A GRU on trajectories of a finger tip, for four gestures: a Sequential of Keras 3.

A module for `edgeconv train`, which names the directory with point_history.csv of the hand gesture
repository as its data.
"""

from pathlib import Path
from typing import Any

import numpy as np
from edgeconv.models import Data

INPUT_NAME = "trajectory"
CLASSES = 4
STEPS = 16
UNITS = 24
TEST_SHARE = 0.25
SPLIT_SEED = 42
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 20
GLOBAL_BATCH = 32
LEARNING_RATE = 5e-3


def build() -> Any:
    """A new keras.Sequential: float32 (batch, 16, 2) to probabilities (batch, 4)."""
    from keras import Sequential, layers

    return Sequential(
        [
            layers.Input((STEPS, 2), name=INPUT_NAME),
            layers.GRU(UNITS),
            layers.Dense(CLASSES, activation="softmax", name="probabilities"),
        ]
    )


def data(location: str | None = None) -> Data:
    """Positions, float32 (n, 16, 2), in fractions of the image, and the gestures, int64 (n,).

    A quarter of them, drawn with a fixed seed, is for testing. Raises `FileNotFoundError` where
    `location` has no point_history.csv.
    """
    rows = np.loadtxt(Path(location or ".") / "point_history.csv", delimiter=",")
    x, labels = rows[:, 1:].reshape(-1, STEPS, 2).astype(np.float32), rows[:, 0].astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = np.split(order, [round(TEST_SHARE * len(order))])
    return Data({INPUT_NAME: x[train]}, labels[train], {INPUT_NAME: x[test]}, labels[test])
