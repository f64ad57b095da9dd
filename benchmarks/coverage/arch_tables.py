"""Models that look strings and whole numbers up in tables."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.drawn import TINY_COUNT, keep, rows
from benchmarks.coverage.settled import library_of, save

WORDS = [f"user-{number}" for number in range(60)]
NUMBERS = [7 * number * number - 30 for number in range(60)]


def strings(directory: Path) -> Path:
    """A recommender: the name of a user to an embedding to scores."""
    return _recommender(directory, "keras", "saved_model")


def strings_in_tf_keras(directory: Path) -> Path:
    """The same in Keras 2."""
    return _recommender(directory, "tf_keras", "saved_model")


def strings_in_a_keras_file(directory: Path) -> Path:
    """The same as a .keras file."""
    return _recommender(directory, "keras", "keras")


def strings_and_floats(directory: Path) -> Path:
    """A user's name and measured features."""
    return _recommender(directory, "keras", "saved_model", measured=True)


def whole_numbers(directory: Path) -> Path:
    """Users by number, in a vocabulary of numbers."""
    keras = library_of("keras")
    layers = keras.layers
    user = layers.Input((1,), dtype="int64", name="user")
    index = layers.IntegerLookup(vocabulary=NUMBERS)(user)
    model = keras.Model(user, _scores(layers, layers.Embedding(61, 16)(index)))
    known = np.random.default_rng(8).choice([*NUMBERS, 3, -1], (TINY_COUNT, 1))
    keep(directory, user=known.astype(np.int64))
    return save(keras, model, directory, "saved_model")


def hashed_strings(directory: Path) -> Path:
    """Names hashed to buckets."""
    keras = library_of("keras")
    layers = keras.layers
    user = layers.Input((1,), dtype="string", name="user")
    x = layers.Embedding(32, 16)(layers.Hashing(num_bins=32)(user))
    keep(directory, user=_names())
    return save(keras, keras.Model(user, _scores(layers, x)), directory, "saved_model")


def _recommender(directory: Path, library: str, kind: str, *, measured: bool = False) -> Path:
    keras = library_of(library)
    layers = keras.layers
    user = layers.Input((1,), dtype="string", name="user")
    x = layers.Embedding(61, 16)(layers.StringLookup(vocabulary=WORDS)(user))
    if not measured:
        keep(directory, user=_names())
        return save(keras, keras.Model(user, _scores(layers, x)), directory, kind)
    ride = layers.Input((6,), name="ride")
    both = layers.Concatenate()([layers.Flatten()(x), ride])
    keep(directory, user=_names(), ride=rows(TINY_COUNT, 6))
    return save(keras, keras.Model([user, ride], _scores(layers, both)), directory, kind)


def _scores(layers: Any, x: Any) -> Any:
    return layers.Dense(3)(layers.Dense(24, activation="relu")(layers.Flatten()(x)))


def _names() -> np.ndarray:
    """Mostly known ones, and some that no vocabulary has."""
    return np.random.default_rng(7).choice([*WORDS, "", "nobody", "Käse"], (TINY_COUNT, 1))
