"""Writes models that scale their input themselves, trained where labels are to tell something.

    python scaling_zoo.py DIRECTORY

digits.npz has pixels of 0 to 255 and labels, once.npz the same of 0 to 1.
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def _trained(k: Any, first: list[Any], x: Any, y: Any) -> Any:
    layers = k.layers
    model = k.Sequential(
        [
            k.Input((8, 8, 1), name="image"),
            *first,
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(k.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    model.fit(x, y, epochs=6, batch_size=64, verbose=0)
    return model


def write(root: Path) -> None:
    """Write everything into `root`."""
    import keras
    import numpy as np
    import sklearn.datasets
    import tensorflow as tf
    import tf_keras

    keras.utils.set_random_seed(3)
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    x = np.float32(images.reshape(-1, 8, 8, 1) / 16 * 255)
    np.savez(root / "digits.npz", image=x[:400], labels=labels[:400])
    np.savez(root / "once.npz", image=x[:400] / 255, labels=labels[:400])
    np.savez(root / "unlabeled.npz", image=x[:400] / 255)
    dark = np.round(x[:400] / 60)
    np.savez(root / "dark.npz", image=dark)
    for prefix, k in (("three", keras), ("two", tf_keras)):
        layers = k.layers
        _trained(k, [layers.Rescaling(1 / 255)], x, labels).save(root / f"{prefix}.keras")
    layers = keras.layers
    offset = _trained(keras, [layers.Rescaling(1 / 127.5, offset=-1)], x, labels)
    offset.save(root / "offset.keras")
    normal = layers.Normalization(mean=[float(x.mean())], variance=[float(x.var())])
    # As in Keras's EfficientNet.
    normalized = keras.Sequential(
        [
            keras.Input((8, 8, 1), name="image"),
            layers.Rescaling(1 / 255),
            layers.Normalization(mean=[0.485], variance=[0.052]),
            layers.Rescaling([0.9]),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    normalized.save(root / "efficient.keras")
    keras.Sequential(
        [keras.Input((8, 8, 1), name="image"), normal, layers.Flatten(), layers.Dense(10)]
    ).save(root / "normalized.keras")
    module = tf.Module()
    module.weight = tf.Variable(np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32))
    module.divided = tf.function(
        lambda image: {"y": tf.reshape((image - 127.5) / 127.5, [-1, 64]) @ module.weight},
        input_signature=[tf.TensorSpec([None, 8, 8, 1], name="image")],
    )
    tf.saved_model.save(module, str(root / "divided"), signatures=module.divided)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
