"""Writes tf.Modules around Keras models as SavedModels, as deployments and the audio tutorial do.

SAMPLES.npz has samples, and MODEL.SIGNATURE.npy what `tf.saved_model.load` answers to the first
eight.
"""

from pathlib import Path
from typing import Any

_WAVE = 1600


def _trained(k: Any, shape: tuple[int, ...], np: Any) -> Any:
    """A model with moving averages of its own, as after a training."""
    layers = k.layers
    model = k.Sequential(
        [
            k.Input(shape),
            layers.Flatten(),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(momentum=0.5),
            layers.Dense(3),
        ]
    )
    random = np.random.default_rng(2)
    for _ in range(20):
        model(random.normal(1.0, 2.0, (32, *shape)).astype(np.float32), training=True)
    return model


def _module(tf: Any, model: Any) -> Any:
    class Served(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            return {"y": self.model(x)}

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def scores(self, x: Any) -> Any:
            return {"scores": tf.nn.softmax(self.model(x))}

    return Served()


def _audio(tf: Any, model: Any) -> Any:
    """The front end of the audio tutorial, with the magnitudes of a short-time transform."""

    class ExportModel(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        @tf.function(input_signature=[tf.TensorSpec([None, _WAVE], tf.float32, name="wave")])
        def serve(self, wave: Any) -> Any:
            spectrum = tf.signal.stft(wave, frame_length=255, frame_step=128)
            result = self.model(tf.abs(spectrum)[..., tf.newaxis], training=False)
            return {"predictions": result, "class_ids": tf.argmax(result, axis=-1)}

    return ExportModel()


def _counting(tf: Any, model: Any) -> Any:
    """With a state, which no graph of constants has, and a table that has to be filled."""

    class Counting(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.count = tf.Variable(0.0)
            keys = tf.constant([0, 1, 2], tf.int64)
            filled = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([5.0, 6.0, 7.0]))
            self.table = tf.lookup.StaticHashTable(filled, -1.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            answer = self.model(x)
            self.count.assign_add(1.0)
            return {"y": answer, "code": self.table.lookup(tf.argmax(answer, axis=-1))}

    return Counting()


def write(root: Path) -> None:
    """Write everything into `root`."""
    import keras
    import numpy as np
    import tensorflow as tf
    import tf_keras

    rng = np.random.default_rng(1)
    x = rng.normal(1.0, 2.0, (80, 8)).astype(np.float32)
    waves = (rng.normal(size=(80, 1)) * np.sin(np.arange(_WAVE) / 9)).astype(np.float32)
    np.savez(root / "x.npz", x=x)
    np.savez(root / "wave.npz", wave=waves)
    frames = tuple(tf.signal.stft(waves[:1], 255, 128).shape[1:])
    three = _module(tf, _trained(keras, (8,), np))
    two = _module(tf, _trained(tf_keras, (8,), np))
    audio = _audio(tf, _trained(keras, (*frames, 1), np))
    counting = _counting(tf, _trained(keras, (8,), np))
    for name, module, feed in (
        ("three", three, x),
        ("two", two, x),
        ("audio", audio, waves),
        ("counting", counting, x),
    ):
        signatures = {"serving_default": module.serve}
        if name == "three":
            signatures["scores"] = module.scores
        tf.saved_model.save(module, str(root / name), signatures=signatures)
        loaded = tf.saved_model.load(str(root / name))
        for key in signatures:
            answer = loaded.signatures[key](tf.constant(feed[:8]))
            for output, value in answer.items():
                np.save(root / f"{name}.{key}.{output}.npy", value.numpy())
    # As the tutorial saves it: of a function that was traced twice, TensorFlow makes no signature.
    several = tf.Module()
    several.model = three.model
    several.predict = tf.function(
        lambda x: several.model(x, training=False) if x.shape[1] == 8 else tf.abs(x)
    )
    several.predict.get_concrete_function(tf.TensorSpec([None, 8], name="x"))
    several.predict.get_concrete_function(tf.TensorSpec([None, 3], name="x"))
    several.double = tf.function(lambda x: {"y": 2 * x})
    several.double.get_concrete_function(tf.TensorSpec([None, 8], name="x"))
    tf.saved_model.save(several, str(root / "without_signatures"))
