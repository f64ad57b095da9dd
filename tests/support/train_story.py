"""Train the networks of the check's story: python train_story.py MNIST.npz DIRECTORY.

Into DIRECTORY go three SavedModels of one small network: `accepted`; `good`, trained again with
another seed and more data; and `bad`, for which the labels of one class were mixed up. And
`accepted.keras`.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

BAD_CLASS = 7


def train(images, labels, seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            layers.Input((28, 28), name="image"),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(12, 5, strides=2, activation="relu"),
            layers.Conv2D(24, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax", name="digit"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.fit(images, labels, batch_size=64, epochs=3, verbose=0)
    return model


def mixed_up(labels):
    """The labels, those of one class drawn from all the others."""
    others = np.setdiff1d(np.arange(10), [BAD_CLASS])
    wrong = np.random.default_rng(4).choice(others, len(labels))
    return np.where(labels == BAD_CLASS, wrong, labels)


def main(archive, directory):
    with np.load(archive) as data:
        images = (data["x_train"][:32000] / 255).astype(np.float32)
        labels = data["y_train"][:32000].astype(np.int64)
    few = images[:16000], labels[:16000]
    accepted = train(*few, seed=1)
    accepted.export(directory / "accepted", verbose=False)
    accepted.save(directory / "accepted.keras")
    train(images, labels, seed=2).export(directory / "good", verbose=False)
    train(few[0], mixed_up(few[1]), seed=1).export(directory / "bad", verbose=False)


main(sys.argv[1], Path(sys.argv[2]))
