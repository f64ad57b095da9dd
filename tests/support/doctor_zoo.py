"""Small CNNs, each trained on photos with another preprocessing; run as a process of its own.

python doctor_zoo.py PHOTOS.npz DIRECTORY: x_train, y_train of the file; the models go into the
directory as SavedModel, .keras and .h5.
"""

import os
import sys

os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"})

import keras
import numpy as np
from keras import layers

CAFFE_BGR = np.array([103.939, 116.779, 123.68], np.float32)
WAYS = {
    "unit": lambda x: x / 255.0,
    "signed": lambda x: x / 127.5 - 1,
    "caffe": lambda x: x[..., ::-1] - CAFFE_BGR,
    # The output of a class for the background comes first.
    "background": lambda x: x / 255.0,
}


def main(photos: str, directory: str) -> None:
    with np.load(photos) as stored:
        x, y = stored["x_train"].astype(np.float32), stored["y_train"].astype(np.int64)
    for name, way in WAYS.items():
        keras.utils.set_random_seed(1)
        offset = 1 if name == "background" else 0
        model = cnn(10 + offset, softmax=name == "signed")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name != "signed")
        model.compile("adam", loss)
        model.fit(way(x), y + offset, batch_size=64, epochs=4, verbose=0)
        model.export(f"{directory}/{name}", format="tf_saved_model", verbose=False)
        model.save(f"{directory}/{name}.keras")
        if name == "unit":
            model.save(f"{directory}/{name}.h5")


def cnn(classes: int, *, softmax: bool) -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((32, 32, 3), name="photo"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(classes, activation="softmax" if softmax else None),
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
