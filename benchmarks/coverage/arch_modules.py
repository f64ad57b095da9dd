"""Models without Keras, or with layers that only a SavedModel can carry."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.drawn import TINY_COUNT, images, keep, rows
from benchmarks.coverage.settled import library_of, save, settle, spread_head

CLASSES = 5


def residual_mlp(directory: Path) -> Path:
    """Dense layers with skips over them."""
    keras = library_of("tf_keras")
    layers = keras.layers
    features = layers.Input((16,), name="features")
    x = layers.Dense(32)(features)
    for _ in range(3):
        y = layers.Dense(32, activation="relu")(layers.BatchNormalization()(x))
        x = layers.Add()([x, layers.Dense(32)(y)])
    model = keras.Model(features, layers.Dense(CLASSES, activation="softmax")(x))
    values = rows(TINY_COUNT, 16)
    keep(directory, features=values)
    return save(keras, settle(keras, model, values), directory, "h5")


def custom_layer(directory: Path, *, library: str) -> Path:
    """A layer of the user's own, which only the SavedModel knows how to compute."""
    keras = library_of(library)
    import tensorflow as tf

    class SoftThreshold(keras.layers.Layer):  # type: ignore[name-defined,misc]
        def build(self, shape: Any) -> None:
            self.level = self.add_weight(shape=(shape[-1],), initializer="uniform", name="level")

        def call(self, x: Any) -> Any:
            return tf.sign(x) * tf.nn.relu(tf.abs(x) - tf.abs(self.level))

    image = keras.layers.Input((16, 16, 3), name="image")
    x = SoftThreshold()(keras.layers.Conv2D(12, 3)(image))
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3)(x))
    model = keras.Model(image, keras.layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, 16, 16)
    keep(directory, image=pixels)
    return save(keras, spread_head(keras, model, pixels), directory, "saved_model")


def _weights(tf: Any, *shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return tf.Variable((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))


def plain_module(directory: Path) -> Path:
    """Two matrix products in a `tf.Module`, for any number of rows."""
    import tensorflow as tf

    module = tf.Module()
    module.first, module.second = _weights(tf, 8, 24), _weights(tf, 24, 3)

    def call(x: Any) -> Any:
        return {"y": tf.nn.relu(x @ module.first) @ module.second}

    keep(directory, x=rows(TINY_COUNT, 8))
    spec = tf.TensorSpec([None, 8], tf.float32, name="x")
    return _saved(tf, directory, module, {"serving_default": (call, spec)})


def _saved(tf: Any, directory: Path, module: Any, signatures: dict[str, tuple[Any, Any]]) -> Path:
    concrete = {
        key: tf.function(call).get_concrete_function(spec)
        for key, (call, spec) in signatures.items()
    }
    tf.saved_model.save(module, str(directory / "model"), signatures=concrete)
    return directory / "model"


def while_loop(directory: Path) -> Path:
    """A weight applied over and over, as many times as a counter says."""
    import tensorflow as tf

    module = tf.Module()
    module.weight, module.last = _weights(tf, 8, 8), _weights(tf, 8, 3)

    def call(x: Any) -> Any:
        def step(count: Any, state: Any) -> Any:
            return count + 1, tf.tanh(state @ module.weight) + x

        _, state = tf.while_loop(lambda count, _: count < 5, step, (tf.constant(0), x))
        return {"y": state @ module.last}

    keep(directory, x=rows(TINY_COUNT, 8))
    spec = tf.TensorSpec([1, 8], tf.float32, name="x")
    return _saved(tf, directory, module, {"serving_default": (call, spec)})


def condition(directory: Path) -> Path:
    """One of two branches, by the sign of the input's sum."""
    import tensorflow as tf

    module = tf.Module()
    module.up, module.down = (_weights(tf, 8, 16, seed=seed) for seed in (1, 2))
    module.last = _weights(tf, 16, 3)

    def call(x: Any) -> Any:
        x = tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.nn.relu(x @ module.up),
            lambda: tf.tanh(x @ module.down),
        )
        return {"y": x @ module.last}

    # Clearly on one side: at the border any rounding takes the other branch.
    x = rows(TINY_COUNT, 8)
    keep(directory, x=x + 0.5 * np.sign(x.sum(axis=1, keepdims=True)))
    spec = tf.TensorSpec([1, 8], tf.float32, name="x")
    return _saved(tf, directory, module, {"serving_default": (call, spec)})


def several_signatures(directory: Path) -> Path:
    """An encoder and a decoder as two signatures of one module; samples for each of them."""
    import tensorflow as tf

    module = tf.Module()
    module.down, module.up = _weights(tf, 8, 16), _weights(tf, 16, 8)

    def encode(x: Any) -> Any:
        return {"code": tf.nn.relu(x @ module.down)}

    def decode(code: Any) -> Any:
        return {"x": code @ module.up}

    keep(directory, "encode", x=rows(TINY_COUNT, 8))
    keep(directory, "decode", code=np.abs(rows(TINY_COUNT, 16)))
    signatures = {
        "encode": (encode, tf.TensorSpec([None, 8], tf.float32, name="x")),
        "decode": (decode, tf.TensorSpec([None, 16], tf.float32, name="code")),
    }
    return _saved(tf, directory, module, signatures)


def tensorflow_1(directory: Path) -> Path:
    """A graph with variables, saved from a session as TensorFlow 1 did."""
    import tensorflow as tf

    v1 = tf.compat.v1
    keep(directory, image=images(TINY_COUNT, 16, 16, 1))
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(5)
        image = v1.placeholder(tf.float32, [None, 16, 16, 1], name="image")
        kernel = v1.get_variable("kernel", [3, 3, 1, 8])
        x = tf.nn.relu(tf.nn.conv2d(image, kernel, strides=2, padding="SAME"))
        x = tf.reshape(x, [-1, 512])
        x = tf.nn.bias_add(x @ v1.get_variable("dense", [512, CLASSES]), v1.get_variable("b", [5]))
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session, str(directory / "model"), {"image": image}, {"probs": tf.nn.softmax(x)}
        )
    return directory / "model"


def select_tensorflow(directory: Path) -> Path:
    """An operator that the built-in runtime has not: a matrix inverse."""
    import tensorflow as tf

    def call(x: Any) -> Any:
        square = tf.reshape(x, [-1, 2, 4])
        square = square @ tf.transpose(square, [0, 2, 1]) + tf.eye(2)
        return {"y": tf.linalg.inv(square)}

    keep(directory, x=rows(TINY_COUNT, 8))
    spec = tf.TensorSpec([None, 8], tf.float32, name="x")
    return _saved(tf, directory, tf.Module(), {"serving_default": (call, spec)})
