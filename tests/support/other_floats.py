"""Models that compute in other floats than float32, and one whose weights are in an LSTM.

python other_floats.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy as np


def main(root: Path) -> None:
    import keras
    import tensorflow as tf
    import tf_keras

    mixed = keras.DTypePolicy("mixed_float16")
    image = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(8, 3, dtype=mixed, name="conv")(image)
    x = keras.layers.BatchNormalization(dtype=mixed)(x)
    x = keras.layers.Flatten(dtype=mixed)(x)
    model = keras.Model(image, keras.layers.Dense(4, dtype="float32", name="out")(x))
    model.save(root / "mixed.keras")
    model.export(root / "mixed", format="tf_saved_model", verbose=False)
    weights = tf.constant(np.random.default_rng(1).normal(size=(8, 4)))
    module = tf.Module()
    module.double = tf.function(lambda x: {"y": x @ weights}).get_concrete_function(
        x=tf.TensorSpec([None, 8], tf.float64, name="x")
    )
    tf.saved_model.save(module, root / "double", signatures={"serving_default": module.double})
    steps = tf_keras.Input((6, 16), name="steps")
    layers = tf_keras.layers
    recurrent = tf_keras.Model(steps, layers.Dense(3, name="out")(layers.LSTM(64)(steps)))
    recurrent.save(root / "recurrent.h5")
    rng = np.random.default_rng(2)
    np.savez(root / "image.npz", image=rng.normal(size=(24, 8, 8, 1)).astype(np.float32))
    np.savez(root / "x.npz", x=rng.normal(size=(24, 8)))
    np.savez(root / "steps.npz", steps=rng.normal(size=(24, 6, 16)).astype(np.float32))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
