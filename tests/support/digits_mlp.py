"""Train scikit-learn's digits in Keras 3 and save `digits.keras` with `digits.npz`, in argv[1].

The array has 597 images that it was not trained with: pixels, labels and the model's confidences.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import sklearn.datasets

TRAINED = 1200

root = Path(sys.argv[1])
keras.utils.set_random_seed(0)
x, y = sklearn.datasets.load_digits(return_X_y=True)
x = np.float32(x / 16)
model = keras.Sequential(
    [
        keras.Input((64,), name="pixels"),
        keras.layers.Dense(24, "relu"),
        keras.layers.Dense(10, "softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x[:TRAINED], y[:TRAINED], epochs=40, verbose=0)
model.save(root / "digits.keras")
confidence = model.predict(x[TRAINED:], verbose=0).max(axis=1)
np.savez(root / "digits.npz", pixels=x[TRAINED:], labels=y[TRAINED:], confidence=confidence)
print(confidence.mean())
