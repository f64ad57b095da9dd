"""Models that only TFLiteConverter quantizes: a leaky ReLU, and recurrent layers.

python converter_models.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy as np


def main(root: Path) -> None:
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(5)
    layers = tf_keras.layers
    image = tf_keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(8, 3, strides=2, activation="relu6", name="first")(image)
    x = layers.DepthwiseConv2D(3, activation="relu6", name="depth")(x)
    x = layers.Conv2D(64, 1, activation="relu6", name="wide")(x)
    x = layers.Conv2D(64, 1, activation="relu6", name="deep")(x)
    x = layers.GlobalMaxPooling2D()(layers.LeakyReLU()(x))
    leaky = tf_keras.Model(image, layers.Dense(10, name="logits")(x))
    # ReLU6 inputs with large means, and channels of unlike ranges, which rounding shifts.
    rng = np.random.default_rng(5)
    for name in ("first", "depth", "wide", "deep"):
        kernel, bias = leaky.get_layer(name).get_weights()
        leaky.get_layer(name).set_weights([kernel * 2, bias + rng.uniform(0, 3, bias.shape)])
    leaky.save(root / "leaky.keras")
    np.savez(root / "image.npz", image=rng.uniform(0, 1, (160, 16, 16, 3)).astype(np.float32))

    steps = tf_keras.Input((12, 8), batch_size=1, name="steps")
    recurrent = tf_keras.Model(steps, layers.Dense(4, name="out")(layers.LSTM(24)(steps)))
    converter = tf.lite.TFLiteConverter.from_keras_model(recurrent)
    (root / "lstm.tflite").write_bytes(converter.convert())
    np.savez(root / "steps.npz", steps=rng.normal(size=(120, 12, 8)).astype(np.float32))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
