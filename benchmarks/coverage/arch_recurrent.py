"""Recurrent networks, in both Keras and every format."""

from pathlib import Path
from typing import Any

from benchmarks.coverage.drawn import COUNT, TINY_COUNT, keep, series, videos
from benchmarks.coverage.settled import library_of, save, spread_head

STEPS, FEATURES, UNITS, CLASSES = 12, 8, 24, 5


def recurrent(directory: Path, *, library: str, layer: str, kind: str) -> Path:
    """One recurrent layer between a series and a softmax."""
    keras = library_of(library)
    if layer == "ConvLSTM2D":
        return _video(directory, keras, kind)
    body = {
        "LSTM": lambda x: keras.layers.LSTM(UNITS)(x),
        "GRU": lambda x: keras.layers.GRU(UNITS)(x),
        "Bidirectional": lambda x: keras.layers.Bidirectional(keras.layers.LSTM(UNITS))(x),
        "SimpleRNN": lambda x: keras.layers.SimpleRNN(UNITS)(x),
        "stacked": lambda x: keras.layers.LSTM(UNITS)(
            keras.layers.LSTM(UNITS, return_sequences=True)(x)
        ),
        "GRU over time": lambda x: keras.layers.GRU(UNITS, return_sequences=True)(x),
        "masked": lambda x: keras.layers.LSTM(UNITS)(keras.layers.Masking()(x)),
    }[layer]
    steps = keras.layers.Input((STEPS, FEATURES), name="steps")
    probs = keras.layers.Dense(CLASSES, activation="softmax", name="probs")(body(steps))
    values = series(TINY_COUNT, STEPS, FEATURES)
    if layer == "masked":
        values[::3, STEPS // 2 :] = 0
    keep(directory, steps=values)
    model = spread_head(keras, keras.Model(steps, probs), values)
    return save(keras, model, directory, kind)


def _video(directory: Path, keras: Any, kind: str) -> Path:
    layers = keras.layers
    frames = layers.Input((4, 12, 12, 1), name="frames")
    x = layers.ConvLSTM2D(6, 3, padding="same")(frames)
    x = layers.Dense(CLASSES, activation="softmax")(layers.Flatten()(x))
    values = videos(COUNT, 4, 12, 12)
    keep(directory, frames=values)
    return save(keras, spread_head(keras, keras.Model(frames, x), values), directory, kind)


def unknown_length(
    directory: Path, *, library: str = "tf_keras", kind: str = "saved_model"
) -> Path:
    """An LSTM over a series of any length."""
    keras = library_of(library)
    steps = keras.layers.Input((None, FEATURES), name="steps")
    x = keras.layers.LSTM(UNITS)(steps)
    model = keras.Model(steps, keras.layers.Dense(CLASSES, activation="softmax")(x))
    values = series(TINY_COUNT, STEPS, FEATURES)
    keep(directory, steps=values)
    return save(keras, spread_head(keras, model, values), directory, kind)


def stateful(directory: Path, *, library: str = "tf_keras", kind: str = "saved_model") -> Path:
    """An LSTM that keeps its state from one batch to the next."""
    keras = library_of(library)
    steps = keras.layers.Input((STEPS, FEATURES), batch_size=1, name="steps")
    x = keras.layers.LSTM(UNITS, stateful=True)(steps)
    model = keras.Model(steps, keras.layers.Dense(CLASSES, activation="softmax")(x))
    keep(directory, steps=series(TINY_COUNT, STEPS, FEATURES))
    return save(keras, model, directory, kind)
