"""A classifier of digits after 80 steps, with Keras's momentum of 0.99, and samples for it.

python unsettled_zoo.py DIRECTORY: writes digits.keras, right.npz (training samples) and wrong.npz
(the same, scaled twice).
"""

import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits


def main(root: Path) -> None:
    keras.utils.set_random_seed(1)
    x, y = load_digits(return_X_y=True)
    x = (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    image = z = layers.Input((8, 8, 1), name="image")
    for filters in (16, 32):
        z = layers.Conv2D(filters, 3, padding="same")(z)
        z = layers.ReLU()(layers.BatchNormalization()(z))
    z = layers.GlobalAveragePooling2D()(z)
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(z))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x[:1280], y[:1280], batch_size=16, epochs=1, verbose=0)
    model.save(root / "digits.keras")
    np.savez(root / "right.npz", image=x[:200])
    np.savez(root / "wrong.npz", image=x[:200] / 255)


main(Path(sys.argv[1]))
