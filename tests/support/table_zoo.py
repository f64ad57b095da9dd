"""Models with lookup tables, and samples for them."""

from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"user-{number}" for number in range(40)]
NUMBERS = [10, 20, 33, 1_000_000_007, -5]
CLASSES = ["cat", "dog", "Käse"]


def write(root: Path) -> None:
    """Write all of them."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    samples(root)
    model = recommender(keras)
    model.export(str(root / "recommender"), verbose=False)
    model.save(root / "recommender.keras")
    numbered(keras).export(str(root / "numbered"), verbose=False)
    hashed(keras).export(str(root / "hashed"), verbose=False)
    from_file(tf, root)
    labeled(tf, root)


def samples(root: Path) -> None:
    """Words that are known and some that are not, numbers likewise, and floats."""
    rng = np.random.default_rng(4)
    known = np.array([*WORDS, "", "nobody", "Käse"])
    user, ride = rng.choice(known, (60, 1)), rng.standard_normal((60, 3), np.float32)
    numbers = rng.choice(np.array([*NUMBERS, 7, -1]), (60, 1)).astype(np.int64)
    np.savez(root / "rides.npz", user=user, ride=ride)
    np.savez(root / "words.npz", user=user[:, 0])
    np.savez(root / "numbers.npz", number=numbers)
    np.savez(root / "x.npz", x=rng.standard_normal((60, 8), np.float32))


def recommender(keras: Any) -> Any:
    """A user's name and three measured features, to four scores."""
    layers = keras.layers
    user, ride = layers.Input((1,), dtype="string", name="user"), layers.Input((3,), name="ride")
    index = layers.StringLookup(vocabulary=WORDS)(user)
    x = layers.Concatenate()([layers.Flatten()(layers.Embedding(41, 24)(index)), ride])
    x = layers.Dense(64, activation="relu")(x)
    return keras.Model([user, ride], layers.Dense(4)(x))


def numbered(keras: Any) -> Any:
    """A vocabulary of whole numbers."""
    layers = keras.layers
    number = layers.Input((1,), dtype="int64", name="number")
    x = layers.Embedding(6, 8)(layers.IntegerLookup(vocabulary=NUMBERS)(number))
    return keras.Model(number, layers.Dense(4)(layers.Flatten()(x)))


def hashed(keras: Any) -> Any:
    """Words hashed to buckets, which TFLite has no operator for."""
    layers = keras.layers
    user = layers.Input((1,), dtype="string", name="user")
    x = layers.Embedding(16, 8)(layers.Hashing(num_bins=16)(user))
    return keras.Model(user, layers.Dense(4)(layers.Flatten()(x)))


def from_file(tf: Any, root: Path) -> None:
    """A vocabulary in a file of the SavedModel."""
    from saved_functions import save

    file = root / "vocabulary.txt"
    file.write_text("\n".join(WORDS), encoding="utf-8")
    lookup = tf.lookup.TextFileIndex
    words = tf.lookup.TextFileInitializer(
        str(file), tf.string, lookup.WHOLE_LINE, tf.int64, lookup.LINE_NUMBER
    )
    table = tf.lookup.StaticHashTable(words, -1)
    rows = tf.Variable(np.random.default_rng(5).standard_normal((41, 4), np.float32))
    save(
        root / "from_file",
        lambda user: {"scores": tf.gather(rows, table.lookup(user) + 1)},
        user=([None], tf.string),
    )


def labeled(tf: Any, root: Path) -> None:
    """The name of the class as the answer, beside the scores."""
    from saved_functions import save

    names = tf.lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), tf.constant(CLASSES))
    table = tf.lookup.StaticHashTable(names, "?")
    dense = tf.Variable(np.random.default_rng(6).standard_normal((8, 3), np.float32))

    def call(x: Any) -> Any:
        scores = x @ dense
        return {"label": table.lookup(tf.argmax(scores, -1)), "scores": scores}

    save(root / "labeled", call, x=[None, 8])
