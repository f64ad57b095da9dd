"""Models as people bring them: several signatures, open sizes, old formats, things to refuse.

What TensorFlow answers to NAME.npz, where there is one, is in NAME.answers.npz.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

SERVING = "serving_default"
COUNT = 24


def write(root: Path) -> None:
    import keras
    import tensorflow as tf
    import tf_keras

    os.environ.setdefault("EDGECONV_TEST_MARK", os.devnull)
    several_signatures(root, tf)
    keras_models(root, keras)
    odd_functions(root, tf)
    session_models(root, tf)
    lambda_models(root, keras, tf_keras)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def save(tf: Any, root: Path, name: str, module: Any, **signatures: tuple[Any, Any]) -> None:
    concrete = {
        key: tf.function(call).get_concrete_function(*specs)
        for key, (call, specs) in signatures.items()
    }
    tf.saved_model.save(module, str(root / name), signatures=concrete or None)


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
    spec = tf.TensorSpec
    module = tf.Module()
    module.shared = tf.Variable(normal(1, 128, 128) / 11)
    module.down = tf.Variable(normal(2, 16, 128) / 4)
    module.up = tf.Variable(normal(3, 128, 16) / 11)

    def encode(x: Any) -> Any:
        return {"code": tf.nn.relu(x @ module.down) @ module.shared}

    def decode(gain: Any, code: Any) -> Any:
        y = tf.nn.relu(code @ module.shared)
        return {"x": (y @ module.up) * gain, "energy": tf.reduce_mean(y, 1, keepdims=True)}

    save(
        tf,
        root,
        "coder",
        module,
        encode=(encode, [spec([None, 16], tf.float32, name="x")]),
        decode=(
            decode,
            [
                spec([None, 1], tf.float32, name="gain"),
                spec([None, 128], tf.float32, name="code"),
            ],
        ),
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


def odd_functions(root: Path, tf: Any) -> None:
    spec = tf.TensorSpec
    module = tf.Module()
    module.w = tf.Variable(normal(11, 4, 3))
    row = spec([None, 4], tf.float32, name="x")

    def with_defaults(x: Any, scale: float = 2.0, *, negate: bool = False) -> Any:
        y = (x @ module.w) * scale
        return {"y": -y if negate else y}

    save(tf, root, "defaults", module, serving_default=(with_defaults, [row]))
    answer(tf, root, "defaults", x=normal(12, COUNT, 4))

    def of_text(text: Any) -> Any:
        return {"n": tf.cast(tf.strings.length(text), tf.float32)[:, None] @ module.w[:1]}

    text = spec([None], tf.string, name="text")
    save(tf, root, "text", module, serving_default=(of_text, [text]))
    tf.saved_model.save(tf.Module(), str(root / "no_signatures"))

    def inverse(x: Any) -> Any:
        return {"y": tf.linalg.inv(x + 3 * tf.eye(4)) @ module.w}

    square = spec([None, 4, 4], tf.float32, name="x")
    save(tf, root, "inverse", module, serving_default=(inverse, [square]))
    answer(tf, root, "inverse", x=normal(13, COUNT, 4, 4) / 4)

    wide = tf.Module()
    wide.w = [tf.Variable(normal(seed, 64, 64) / 8) for seed in (14, 15)]

    def dense(x: Any) -> Any:
        return {"y": tf.nn.relu(x @ wide.w[0]) @ wide.w[1]}

    save(
        tf,
        root,
        "dense",
        wide,
        serving_default=(dense, [spec([None, 64], tf.float32, name="x")]),
    )
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


def lambda_models(root: Path, keras: Any, tf_keras: Any) -> None:
    """Whose loading writes $EDGECONV_TEST_MARK, where code in them runs at all."""
    row = keras.layers.Input((4,), name="row")
    keras.Model(row, keras.layers.Dense(2)(row)).save(root / "plain.h5")
    for library in (keras, tf_keras):
        stem = library.__name__
        layers = library.layers
        marking = layers.Lambda(
            lambda x: (
                __import__("pathlib").Path(__import__("os").environ["EDGECONV_TEST_MARK"]).touch(),
                x * 2.0,
            )[1],
            output_shape=(4,),
        )
        row = layers.Input((4,), name="row")
        inner = library.Model(row, marking(row), name="inner")
        outer = layers.Input((4,), name="row")
        nested = library.Model(outer, layers.Dense(2)(inner(outer)))
        steps = layers.Input((3, 4), name="steps")
        timed = library.Model(steps, layers.TimeDistributed(marking)(steps))
        for name, model in (("lambda", inner), ("nested", nested), ("timed", timed)):
            model.save(root / f"{name}.{stem}.keras")
            model.save(root / f"{name}.{stem}.h5")
