"""Models that open only with an option, or in the Keras that they are of."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.coverage.drawn import TINY_COUNT, images, keep, rows
from benchmarks.coverage.settled import library_of, save, spread_head

CLASSES = 5
# The module that `--custom-objects` names.
MODULE = "own_layers"
_LAYER = """\
import {library} as keras
import tensorflow as tf


class SoftThreshold(keras.layers.Layer):
    def build(self, shape):
        self.level = self.add_weight(shape=(shape[-1],), initializer="uniform", name="level")

    def call(self, x):
        return tf.sign(x) * tf.nn.relu(tf.abs(x) - tf.abs(self.level))
"""


def custom_objects(directory: Path, *, library: str, kind: str) -> Path:
    """A Keras file with a layer of the user's own, beside the module that defines it."""
    keras = library_of(library)
    # Where the table's conversions run.
    place = directory / "tmp"
    place.mkdir(exist_ok=True)
    (place / f"{MODULE}.py").write_text(_LAYER.format(library=library), encoding="utf-8")
    sys.path.append(str(place))
    own = importlib.import_module(MODULE)
    image = keras.layers.Input((16, 16, 3), name="image")
    x = own.SoftThreshold()(keras.layers.Conv2D(12, 3)(image))
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3)(x))
    model = keras.Model(image, keras.layers.Dense(CLASSES, activation="softmax")(x))
    pixels = images(TINY_COUNT, 16, 16)
    keep(directory, image=pixels)
    return save(keras, spread_head(keras, model, pixels), directory, kind)


def generator(directory: Path) -> Path:
    """An image-to-image generator for any size, as Keras of TensorFlow 2.2 wrote it.

    Keras 3 reads it, and its transposed convolution leaves the size of what follows unknown.
    """
    keras = library_of("tf_keras")
    layers = keras.layers
    image = layers.Input((None, None, 3), name="image")
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.LeakyReLU()(layers.Conv2DTranspose(12, 3, strides=2, padding="same")(x))
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.UpSampling2D()(x))
    model = keras.Model(image, layers.Conv2D(3, 3, padding="same", activation="tanh")(x))
    keep(directory, image=2 * images(TINY_COUNT, 16, 16) - 1)
    return _older(save(keras, model, directory, "h5"))


def _older(path: Path) -> Path:
    """The file without what later versions write for a transposed convolution."""
    import h5py

    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            if layer["class_name"] == "Conv2DTranspose":
                del layer["config"]["groups"]
        file.attrs["model_config"] = json.dumps(config).encode()
        file.attrs["keras_version"] = b"2.3.0-tf"
    return path


def other_tag(directory: Path) -> Path:
    """A SavedModel of TensorFlow 1 with two graphs, neither of them tagged for serving."""
    import tensorflow as tf

    v1 = tf.compat.v1
    keep(directory, x=rows(TINY_COUNT, 8))
    builder = v1.saved_model.Builder(str(directory / "model"))
    for tag, scale in (("train", 2.0), ("infer", 1.0)):
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(5)
            ends = _dense(tf, scale)
            if tag == "train":
                session.run(v1.global_variables_initializer())
                builder.add_meta_graph_and_variables(session, [tag], signature_def_map=ends)
            else:
                builder.add_meta_graph([tag], signature_def_map=ends)
    builder.save()
    return directory / "model"


def _dense(tf: Any, scale: float) -> dict[str, Any]:
    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    logits = scale * (x @ v1.get_variable("dense", [8, CLASSES]))
    predict = v1.saved_model.predict_signature_def
    return {"serving_default": predict({"x": x}, {"probs": tf.nn.softmax(logits)})}
