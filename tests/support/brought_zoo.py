"""Models as people bring them: several signatures, open sizes, old formats, things to refuse.

What TensorFlow answers to NAME.npz, where there is one, is in NAME.answers.npz.
"""

from pathlib import Path
from typing import Any

import numpy as np
from saved_functions import save, save_signatures

SERVING = "serving_default"
COUNT = 24


def write(root: Path) -> None:
    import keras
    import tensorflow as tf

    several_signatures(root, tf)
    keras_models(root, keras)
    odd_functions(root, tf)
    session_models(root, tf)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def answer(tf: Any, root: Path, name: str, key: str = SERVING, **inputs: np.ndarray) -> None:
    """Keep samples, and what a signature answers to them one by one."""
    signature = tf.saved_model.load(str(root / name)).signatures[key]
    stem = name if key == SERVING else f"{name}.{key}"
    np.savez(root / f"{stem}.npz", **inputs)
    count = len(next(iter(inputs.values())))
    runs = [
        signature(**{n: tf.constant(a[i : i + 1]) for n, a in inputs.items()}) for i in range(count)
    ]
    outputs = {n: np.concatenate([np.atleast_1d(run[n].numpy()) for run in runs]) for n in runs[0]}
    np.savez(root / f"{stem}.answers.npz", **outputs)


def several_signatures(root: Path, tf: Any) -> None:
    """An encoder and a decoder that share a weight of 64 KiB; the decoder also takes a gain."""
    shared = tf.Variable(normal(1, 128, 128) / 11)
    down, up = tf.Variable(normal(2, 16, 128) / 4), tf.Variable(normal(3, 128, 16) / 11)

    def encode(x: Any) -> Any:
        return {"code": tf.nn.relu(x @ down) @ shared}

    def decode(gain: Any, code: Any) -> Any:
        y = tf.nn.relu(code @ shared)
        return {"x": (y @ up) * gain, "energy": tf.reduce_mean(y, 1, keepdims=True)}

    save_signatures(
        root / "coder",
        encode=(encode, {"x": [None, 16]}),
        decode=(decode, {"gain": [None, 1], "code": [None, 128]}),
    )
    answer(tf, root, "coder", "encode", x=normal(4, COUNT, 16))
    # A hundred times larger than what the encoder sees: one range for both would be wrong.
    size = np.linspace(20, 180, COUNT, dtype=np.float32)[:, None]
    code = size * np.abs(normal(5, COUNT, 128))
    answer(tf, root, "coder", "decode", code=code, gain=1 + np.abs(normal(6, COUNT, 1)))


def keras_models(root: Path, keras: Any) -> None:
    import tensorflow as tf

    layers = keras.layers
    keras.utils.set_random_seed(19)
    image = layers.Input((None, None, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    keras.Model(image, layers.Dense(5, name="logits")(x)).export(
        str(root / "spatial"), verbose=False
    )
    pixels = np.random.default_rng(7).uniform(0, 1, (COUNT, 24, 20, 3)).astype(np.float32)
    levels = np.linspace(0.1, 1, COUNT, dtype=np.float32)[:, None, None, None]
    answer(tf, root, "spatial", image=pixels * levels)

    steps = layers.Input(batch_shape=(1, 5, 8), name="steps")
    state = layers.LSTM(6, stateful=True)(steps)
    stateful = keras.Model(steps, layers.Dense(3)(state))
    stateful.save(root / "stateful.keras")
    fixed = keras.InputSpec(dtype="float32", shape=(1, 5, 8), name="steps")
    stateful.export(str(root / "stateful"), verbose=False, input_signature=[fixed])
    np.savez(root / "stateful.npz", steps=normal(8, COUNT, 5, 8))

    steps = layers.Input((5, 8), name="steps")
    dropped = keras.Model(steps, layers.LSTM(6, dropout=0.3, recurrent_dropout=0.3)(steps))
    dropped.export(str(root / "dropout"), verbose=False)
    answer(tf, root, "dropout", steps=normal(9, COUNT, 5, 8))

    @keras.saving.register_keras_serializable(package="mine")
    class Threshold(layers.Layer):  # type: ignore[name-defined,misc]
        def build(self, shape: Any) -> None:
            self.level = self.add_weight(shape=(shape[-1],), initializer="uniform", name="level")

        def call(self, x: Any) -> Any:
            return keras.ops.relu(x - self.level) - keras.ops.relu(-x - self.level)

    row = layers.Input((6,), name="row")
    custom = keras.Model(row, layers.Dense(3)(Threshold()(layers.Dense(8)(row))))
    custom.save(root / "custom.keras")
    custom.export(str(root / "custom"), verbose=False)
    answer(tf, root, "custom", row=normal(10, COUNT, 6))
    keras.Model(row, layers.Dense(2)(row)).save(root / "plain.h5")


def odd_functions(root: Path, tf: Any) -> None:
    weights = tf.Variable(normal(11, 4, 3))
    first, second = (tf.Variable(normal(seed, 64, 64) / 8) for seed in (14, 15))

    def with_defaults(x: Any, scale: float = 2.0, *, negate: bool = False) -> Any:
        y = (x @ weights) * scale
        return {"y": -y if negate else y}

    def of_text(text: Any) -> Any:
        return {"n": tf.cast(tf.strings.length(text), tf.float32)[:, None] @ weights[:1]}

    def inverse(x: Any) -> Any:
        return {"y": tf.linalg.inv(x + 3 * tf.eye(4)) @ weights}

    def dense(x: Any) -> Any:
        return {"y": tf.nn.relu(x @ first) @ second}

    save(root / "defaults", with_defaults, x=[None, 4])
    answer(tf, root, "defaults", x=normal(12, COUNT, 4))
    save(root / "text", of_text, text=([None], tf.string))
    save(root / "inverse", inverse, x=[None, 4, 4])
    answer(tf, root, "inverse", x=normal(13, COUNT, 4, 4) / 4)
    save(root / "dense", dense, x=[None, 64])
    answer(tf, root, "dense", x=normal(16, COUNT, 64))


def session_models(root: Path, tf: Any) -> None:
    """Of TensorFlow 1: a graph with variables, saved from a session."""
    v1 = tf.compat.v1
    for name, resources in (("session", False), ("session_resource", True)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 6], name="x")
            weight = v1.get_variable(
                "w",
                [6, 3],
                use_resource=resources,
                initializer=v1.random_normal_initializer(seed=3),
            )
            y = tf.nn.relu(x) @ weight
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(root / name), {"x": x}, {"y": y})
            values = normal(17, COUNT, 6)
            np.savez(root / f"{name}.npz", x=values)
            np.savez(root / f"{name}.answers.npz", y=session.run(y, {x: values}))
