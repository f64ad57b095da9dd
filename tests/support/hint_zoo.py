"""Models whose conversion is refused with advice, and what they become by it.

Run as a script with TensorFlow: writes each into the directory given.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
RNG = np.random.default_rng(4)
WORDS = ["a", "bb", "ccc"]
# A layer that only its own code knows.
TWICE = """\
import keras

class Twice(keras.layers.Layer):
    def call(self, x):
        return x * 2
"""


def floats(*shape: int, by: float = 1.0) -> np.ndarray:
    """Normal numbers, times `by`."""
    return (RNG.normal(size=shape) * by).astype(np.float32)


def resized(interpolation: str) -> keras.Model:
    """Pictures of any size, made twice as large."""
    return keras.Sequential(
        [
            keras.Input((None, None, 3), name="image"),
            layers.Conv2D(4, 3, padding="same"),
            layers.UpSampling2D(interpolation=interpolation),
            layers.Conv2D(1, 1),
        ]
    )


def volumes(*, splits: bool) -> keras.Model:
    """A convolution of two groups of channels, or one of each half."""
    x = keras.Input((6, 6, 6, 4), name="volume")
    if splits:
        halves = keras.ops.split(x, 2, axis=-1)
        y = layers.Concatenate()([layers.Conv3D(2, 3)(half) for half in halves])
    else:
        y = layers.Conv3D(4, 3, groups=2)(x)
    return keras.Model(x, layers.Dense(3)(layers.Flatten()(y)))


def dense(by: float, *, name: str = "x") -> keras.Model:
    """A layer whose weights are normal numbers times `by`."""
    model = keras.Sequential([keras.Input((12,), name=name), layers.Dense(4)])
    model.set_weights([floats(12, 4, by=by), floats(4)])
    return model


def texts(kind: str) -> keras.Model:
    """A mean of what ids of words stand for; the ids are of this type."""
    ids = keras.Input((12,), name="ids", dtype=kind)
    mean = layers.GlobalAveragePooling1D()(layers.Embedding(50, 8)(ids))
    return keras.Model(ids, layers.Dense(3)(mean))


def table(kind: tf.DType, values: list[float], default: float) -> tf.lookup.StaticHashTable:
    """What words stand for."""
    entries = tf.lookup.KeyValueTensorInitializer(WORDS, values, tf.string, kind)
    return tf.lookup.StaticHashTable(entries, default)


def save(root: Path, name: str, serve: Callable[..., Any], **specs: Any) -> None:
    """Write a SavedModel of a function that takes `specs`, each a shape and a type."""
    module = tf.Module()
    # What the function closes over is saved with the module.
    module.kept = [cell.cell_contents for cell in serve.__closure__ or ()]
    signature = [tf.TensorSpec(*spec, name=each) for each, spec in specs.items()]
    module.serve = tf.function(serve, input_signature=signature)
    tf.saved_model.save(module, str(root / name), signatures=module.serve)


def of_words(root: Path) -> None:
    """Rows of a table, by words in ways that TFLite has and has not."""
    rows = tf.constant(floats(32, 4))
    index, numbers = table(tf.int64, [0, 1, 2], 3), table(tf.float32, [0.5, 1.5, 2.5], -1.0)
    word = ([None], tf.string)
    hashed = tf.strings.to_hash_bucket_fast
    save(root, "hashed", lambda word: {"y": tf.gather(rows, hashed(word, 32))}, word=word)
    save(root, "by_number", lambda n: {"y": tf.gather(rows, n)}, n=([None], tf.int64))
    save(root, "by_index", lambda word: {"y": tf.gather(rows, index.lookup(word))}, word=word)
    save(root, "numbers", lambda word: {"y": numbers.lookup(word)[:, None] * rows[:1]}, word=word)


def of_boxes(root: Path) -> None:
    """The boxes that are left of ten that overlap."""
    image = tf.image

    def combined(boxes: tf.Tensor, scores: tf.Tensor) -> dict[str, tf.Tensor]:
        found = image.combined_non_max_suppression(boxes[:, :, None], scores, 4, 4)
        return {"boxes": found[0]}

    def padded(boxes: tf.Tensor, scores: tf.Tensor) -> dict[str, tf.Tensor]:
        kept, _ = image.non_max_suppression_padded(
            boxes[0], scores[0, :, 0], 4, pad_to_max_output_size=True
        )
        return {"boxes": tf.gather(boxes[0], kept)}

    specs = {"boxes": ([1, 10, 4], tf.float32), "scores": ([1, 10, 2], tf.float32)}
    save(root, "combined", combined, **specs)
    save(root, "padded", padded, **specs)
    corners = RNG.random((20, 10, 2)) * 0.5
    boxes = np.concatenate([corners, corners + 0.1 + 0.4 * RNG.random((20, 10, 2))], -1)
    scores = RNG.random((20, 10, 2)).astype(np.float32)
    np.savez(root / "boxes.npz", boxes=boxes.astype(np.float32), scores=scores)


def of_operators(root: Path) -> None:
    """Operators without an integer kernel."""
    weights = tf.constant(floats(12, 8, by=0.4))
    x = ([None, 12], tf.float32)
    squares = lambda x: {"y": tf.minimum(tf.square(x @ weights), 3.0)}  # noqa: E731
    save(root, "squares", squares, x=x)
    save(root, "sines", lambda x: {"y": tf.sin(x) @ weights}, x=x)


def of_layers(root: Path) -> None:
    """Keras files that do not load as they are, and what their authors can give instead."""
    (root / "layers_of_mine.py").write_text(TWICE, encoding="utf-8")
    sys.path.insert(0, str(root))
    import layers_of_mine  # type: ignore[import-not-found]

    own = keras.Sequential([keras.Input((12,), name="x"), layers.Dense(4), layers_of_mine.Twice()])
    code = keras.Sequential([keras.Input((12,), name="x"), layers.Lambda(lambda x: x * 2)])
    for name, model in (("own", own), ("lambda", code)):
        model.save(root / f"{name}.keras")
        model.export(root / name, verbose=False)
    unbuilt = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    unbuilt.save(root / "unbuilt.keras")
    unbuilt.build((None, 12))
    unbuilt.save(root / "called.keras")


def of_training(root: Path) -> None:
    """Models of two outputs, and of an operation that tf_keras has no layer for; and labels."""
    x = keras.Input((12,), name="x")
    hidden = layers.Dense(8, "relu")(x)
    kind, size = layers.Dense(3, "softmax", name="kind"), layers.Dense(1, name="size")
    keras.Model(x, [kind(hidden), size(hidden)]).save(root / "two.keras")
    for name in ("sine", "tanh"):
        middle = keras.ops.sin(hidden) if name == "sine" else layers.Activation("tanh")(hidden)
        keras.Model(x, layers.Dense(2)(middle)).save(root / f"{name}.keras")
    values, kinds = floats(40, 12), RNG.integers(0, 3, 40)
    np.savez(root / "one_label.npz", x=values, labels=kinds)
    np.savez(root / "two_labels.npz", x=values, kind=kinds, size=floats(40, 1))
    np.savez(root / "seven_labels.npz", x=values, labels=floats(40, 7))


def of_damage(root: Path) -> None:
    """A model, and one whose file of variables was cut off on its way."""
    module = tf.Module()
    module.weights = tf.Variable(floats(12, 300))
    module.serve = tf.function(
        lambda x: {"y": x @ module.weights}, input_signature=[tf.TensorSpec([None, 12], name="x")]
    )
    tf.saved_model.save(module, str(root / "whole"), signatures=module.serve)
    shutil.copytree(root / "whole", root / "cut")
    (variables,) = (root / "cut" / "variables").glob("*.data*")
    variables.write_bytes(variables.read_bytes()[:100])


def main(root: Path) -> None:
    """Write the models, and samples for them."""
    keras.utils.set_random_seed(4)
    for interpolation in ("bilinear", "nearest"):
        resized(interpolation).save(root / f"{interpolation}.keras")
    volumes(splits=False).save(root / "grouped.keras")
    volumes(splits=True).save(root / "split.keras")
    dense(1.0).save(root / "dense.keras")
    dense(1e16).save(root / "huge.keras")
    for kind in ("float32", "int32"):
        texts(kind).save(root / f"{kind}_ids.keras")
        np.savez(root / f"{kind}_ids.npz", ids=RNG.integers(0, 50, (40, 12)).astype(kind))
    for by, name in ((1.0, "x"), (1e16, "large")):
        np.savez(root / f"{name}.npz", x=floats(40, 12, by=by))
    for write in (of_words, of_boxes, of_operators, of_layers, of_training, of_damage):
        write(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
