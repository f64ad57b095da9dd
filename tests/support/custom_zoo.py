"""Writes models with layers of their own, of both Keras versions, and the modules with them."""

import importlib
import sys
from pathlib import Path
from typing import Any

_LAYERS = """\
{imports}

NUMBER = 3


@keras.{register}(package="mine")
class AttentionPool(keras.layers.Layer):
    def build(self, shape):
        self.weight = self.add_weight(shape=(shape[-1], 1), name="weight")

    def call(self, x):
        return tf.reduce_sum(tf.nn.softmax(tf.matmul(x, self.weight), axis=1) * x, axis=1)


class Scale(keras.layers.Layer):
    def __init__(self, factor=1.0, **rest):
        super().__init__(**rest)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return {{**super().get_config(), "factor": self.factor}}


class NoPenalty(keras.regularizers.Regularizer):
    def __call__(self, weights):
        return 0.0

    def get_config(self):
        return {{}}


def my_swish(x):
    return x * tf.sigmoid(1.5 * x)
"""
_FINE_TUNE = """\
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 1
GLOBAL_BATCH = 16
LEARNING_RATE = 1e-2


def build():
    from tf_keras import models

    return models.load_model("start.keras", compile=False)


def data(place=None):
    import numpy as np
    from edgeconv.models import Data

    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 4)).astype("f")
    y = (x > 0).sum(1) % 3
    return Data({"x": x[:48]}, y[:48], {"x": x[48:]}, y[48:])
"""
_MODULES = {
    "fine_tune": _FINE_TUNE,
    "my_layers": _LAYERS.format(
        imports="import keras\nimport tensorflow as tf",
        register="saving.register_keras_serializable",
    ),
    "my_tf_layers": _LAYERS.format(
        imports="import tensorflow as tf\nimport tf_keras as keras",
        register="utils.register_keras_serializable",
    ),
    "empty": "A = 1\n",
    "broken": "A = 1\nA / 0\n",
    "wrong_syntax": "class\n",
    "leaves": "raise SystemExit(3)\n",
    "types": "A = 1\n",
}


def model(keras: Any, own: Any, *, with_function: bool) -> Any:
    """A model with every kind of custom object; tf_keras loads no function from HDF5 itself."""
    inputs = keras.layers.Input((6, 4), name="steps")
    activation = own.my_swish if with_function else "relu"
    x = keras.layers.Dense(5, activation=activation, kernel_regularizer=own.NoPenalty())(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(own.Scale(3.0)(own.AttentionPool()(x))))


def write(place: Path) -> None:
    """Write all of it."""
    for name, text in _MODULES.items():
        (place / f"{name}.py").write_text(text, encoding="utf-8")
    import keras
    import tf_keras

    # After the standard library, which has a `types` of its own.
    sys.path.append(str(place))
    own, own_tf = (importlib.import_module(name) for name in ("my_layers", "my_tf_layers"))
    three = model(keras, own, with_function=True)
    three.save(place / "three.keras")
    three.save(place / "three.h5")
    model(tf_keras, own_tf, with_function=True).save(place / "two.keras")
    model(tf_keras, own_tf, with_function=False).save(place / "two.h5")
    row = tf_keras.layers.Input((4,), name="x")
    start = tf_keras.layers.Dense(3, activation="softmax")(own_tf.Scale(2.0)(row))
    tf_keras.Model(row, start).save(place / "start.keras")
    inputs = keras.layers.Input((4,))
    keras.Model(inputs, own.Scale(2.0)(inputs)).save(place / "one.keras")
    code = keras.Model(inputs, own.Scale(2.0)(keras.layers.Lambda(lambda x: x * 2)(inputs)))
    code.save(place / "code.keras")
    code.save(place / "code.h5")
