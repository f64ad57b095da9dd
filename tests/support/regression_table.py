"""Keras's regression tutorial: `table.keras`, which normalizes, and `table.npz`, in argv[1].

The columns are a fraction, a weight of up to 5,000, and a year.
"""

import sys
from pathlib import Path

import keras
import numpy as np

root = Path(sys.argv[1])
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.uniform([0, 0, 1970], [1, 5000, 1983], size=(500, 3)).astype("float32")
y = 2000 * x[:, 0] + 0.3 * x[:, 1] + 60 * (x[:, 2] - 1970)
normalization = keras.layers.Normalization()
normalization.adapt(x)
model = keras.Sequential(
    [
        keras.Input((3,), name="x"),
        normalization,
        keras.layers.Dense(32, "relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(keras.optimizers.Adam(0.01), "mse")
model.fit(x[:300], y[:300], epochs=30, verbose=0)
model.save(root / "table.keras")
np.savez(root / "table.npz", x=x[300:])
