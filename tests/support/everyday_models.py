"""Models as people make them after a tutorial, trained a little, with what they answer.

    python everyday_models.py DIRECTORY

Each is a directory: `model` or `model.keras`, `calibration.npz`, and `test.npz` with the inputs.
`answers.npz` has what the model answers to these, `labels.npy` the classes where it classifies.
"""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
Arrays = dict[str, np.ndarray]
CALIBRATION, TEST = 200, 56


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def keep(place: Path, inputs: Arrays, answers: Arrays, labels: np.ndarray | None = None) -> None:
    """Write the samples: the last `TEST` are for the test, and `answers` and `labels` are to these.

    Nothing that calibrates is tested with.
    """
    np.savez(place / "calibration.npz", **{name: x[:-TEST] for name, x in inputs.items()})
    np.savez(place / "test.npz", **{name: x[-TEST:] for name, x in inputs.items()})
    np.savez(place / "answers.npz", **answers)
    if labels is not None:
        np.save(place / "labels.npy", labels[-TEST:])


def keep_keras(place: Path, model: Any, inputs: Arrays, labels: np.ndarray | None = None) -> None:
    """A Keras file, and what `model.predict` answers: its only output, which has no name yet."""
    model.save(place / "model.keras")
    (_, x), *others = inputs.items()
    tested = {name: x[-TEST:] for name, x in inputs.items()} if others else x[-TEST:]
    keep(place, inputs, {"only": model.predict(tested, verbose=0)}, labels)


def keep_function(place: Path, module: tf.Module, inputs: Arrays, batch: int = 1) -> None:
    """A SavedModel of `module.serve`, and what it answers to `batch` rows at a time."""
    tf.saved_model.save(module, place / "model", signatures=module.serve)
    rows = range(-TEST, 0, batch)
    runs = [
        module.serve(*(tf.constant(x[n : n + batch or None]) for x in inputs.values()))
        for n in rows
    ]
    answers = {name: np.stack([run[name].numpy() for run in runs]) for name in runs[0]}
    keep(place, inputs, answers)


def fitted(
    model: Any, inputs: Any, targets: Any, loss: str, epochs: int, rate: float = 3e-3
) -> None:
    model.compile(keras.optimizers.Adam(rate), loss, jit_compile=False)
    model.fit(inputs, targets, batch_size=32, epochs=epochs, verbose=0)


def pictures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of 0 to 255, [count, 24, 24, 3], and which of three colors is the brightest."""
    labels = rng.integers(0, 3, count)
    coarse = rng.uniform(0, 120, (count, 6, 6, 3))
    coarse[np.arange(count), 1:5, 1:5, labels] += 110
    fine = coarse.repeat(4, 1).repeat(4, 2) + rng.normal(0, 8, (count, 24, 24, 3))
    return np.clip(fine, 0, 255).astype(np.float32), labels


def sentences(rng: np.random.Generator, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of 50 words, 0 behind the last, and whether there are more of the first half of words."""
    ids = rng.integers(1, 50, (count, length))
    ids[np.arange(length) >= rng.integers(length // 3, length + 1, count)[:, None]] = 0
    first = ((ids > 0) & (ids < 25)).sum(1)
    return ids.astype(np.float32), (2 * first > (ids > 0).sum(1)).astype(np.int64)


# Image tutorials


def augmented(place: Path, rng: np.random.Generator) -> None:
    """Keras's and TensorFlow's image classification: augmentation and scaling are in the model."""
    x, labels = pictures(rng, CALIBRATION + TEST)
    augmentation = keras.Sequential(
        [
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.RandomZoom(0.1),
            layers.RandomContrast(0.1),
        ]
    )
    image = keras.Input((24, 24, 3), name="image")
    h = layers.Rescaling(1 / 255)(augmentation(image))
    for filters in (8, 16):
        h = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(h)
        h = layers.Activation("relu")(layers.BatchNormalization(momentum=0.8)(h))
    h = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(h))
    model = keras.Model(image, layers.Dense(3, "softmax", name="color")(h))
    fitted(model, x[:-TEST], labels[:-TEST], "sparse_categorical_crossentropy", 12, 1e-2)
    keep_keras(place, model, {"image": x}, labels)


class Doubled(layers.Layer):
    """As a sampling or a stochastic layer is written: `training` is true unless it is said."""

    def call(self, x: Any, training: bool = True) -> Any:
        return x * 2 + keras.random.normal((4,)) if training else x


def generator(place: Path, rng: np.random.Generator) -> None:
    """Of a GAN: mostly black pictures, the logits of which have no lower end."""
    noise = keras.Input((16,), name="noise")
    h = layers.Reshape((4, 4, 8))(layers.Dense(128, "relu")(noise))
    h = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(h)
    final = layers.Conv2DTranspose(
        1, 3, strides=2, padding="same", activation="sigmoid", name="picture",
        kernel_initializer=keras.initializers.RandomUniform(-400, 20, seed=3),
        bias_initializer="ones",
    )  # fmt: skip
    keep_keras(place, keras.Model(noise, final(h)), {"noise": normal(rng, CALIBRATION + TEST, 16)})


# Text tutorials


def text(place: Path, rng: np.random.Generator) -> None:
    """The basic text classification: ids come as float32, since nobody says otherwise."""
    ids, labels = sentences(rng, 3 * CALIBRATION, 12)
    model = keras.Sequential(
        [
            keras.Input((12,), name="ids"),
            layers.Embedding(50, 8, mask_zero=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, "relu"),
            layers.Dense(2, "softmax", name="tone"),
        ]
    )
    fitted(model, ids[:-TEST], labels[:-TEST], "sparse_categorical_crossentropy", 15, 1e-2)
    keep_keras(place, model, {"ids": ids}, labels)


def transformer(place: Path, rng: np.random.Generator) -> None:
    """An encoder with attention masks, layer normalization and GELU."""
    ids, labels = sentences(rng, 4 * CALIBRATION, 16)
    tokens = keras.Input((16,), dtype="int32", name="ids")
    h = layers.Embedding(50, 16, mask_zero=True)(tokens)
    attended = layers.MultiHeadAttention(2, 8)(h, h)
    h = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([h, attended]))
    wide = layers.Dense(16)(layers.Dense(32, "gelu")(h))
    h = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([h, wide]))
    model = keras.Model(
        tokens, layers.Dense(2, "softmax", name="tone")(layers.GlobalAveragePooling1D()(h))
    )
    fitted(
        model, ids[:-TEST].astype(np.int32), labels[:-TEST], "sparse_categorical_crossentropy", 10
    )
    keep_keras(place, model, {"ids": ids.astype(np.int32)}, labels)


def lstm(place: Path, rng: np.random.Generator) -> None:
    """Gestures of 20 steps: whether the first or the second half of them moves more."""
    count = 2 * CALIBRATION
    labels = rng.integers(0, 2, count)
    steps = normal(rng, count, 20, 6) * 0.3
    steps[labels == 0, :10] += np.sin(np.arange(10))[:, None]
    steps[labels == 1, 10:] += np.sin(np.arange(10))[:, None]
    model = keras.Sequential(
        [
            keras.Input((20, 6), name="steps"),
            layers.LSTM(16, return_sequences=True),
            layers.LSTM(12),
            layers.Dense(2, "softmax", name="half"),
        ]
    )
    fitted(model, steps[:-TEST], labels[:-TEST], "sparse_categorical_crossentropy", 10, 1e-2)
    keep_keras(place, model, {"steps": steps.astype(np.float32)}, labels)


# Regression


def cars(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very different scale, and a number of up to some thousands."""
    count = 3 * CALIBRATION
    columns = rng.uniform(0, 1, (count, 4))
    price = 3000 * columns[:, 0] + 1500 * columns[:, 1] * columns[:, 2] + 300 * columns[:, 3]
    scaled = columns * [1, 5000, 60, 8] + [0, 0, 1960, 0]
    return scaled.astype(np.float32), price.astype(np.float32)


def regression(place: Path, rng: np.random.Generator) -> None:
    """The basic regression: the normalization is the model's first layer."""
    x, price = cars(rng)
    normalization = layers.Normalization()
    normalization.adapt(x)
    model = keras.Sequential(
        [keras.Input((4,), name="car"), normalization, layers.Dense(32, "relu"),
         layers.Dense(32, "relu"), layers.Dense(1, name="price")]
    )  # fmt: skip
    fitted(model, x[:-TEST], price[:-TEST], "mean_absolute_error", 60, 1e-2)
    keep_keras(place, model, {"car": x})


def landmarks(place: Path, rng: np.random.Generator) -> None:
    """A regression that quantization-aware training is asked for, with labels of float32."""
    x, _ = pictures(rng, 2 * CALIBRATION)
    targets = np.stack([x.mean((1, 2, 3)), x.std((1, 2, 3))], 1) / 255
    image = keras.Input((24, 24, 3), name="image")
    h = image
    for filters in (8, 12):
        h = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(h)
    model = keras.Model(image, layers.Dense(2, name="points")(layers.Flatten()(h)))
    fitted(model, x[:-TEST] / 255, targets[:-TEST], "mse", 10)
    keep_keras(place, model, {"image": x / 255})
    np.savez(
        place / "training.npz", image=x[:-TEST] / 255, labels=targets[:-TEST].astype(np.float32)
    )


# Functions


class Served(tf.Module):
    """What is around a Keras model in a deployment: scaling before, the best class after."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec([None, 24, 24, 3], tf.float32, name="image")])
    def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = self.model(image / 127.5 - 1.0, training=False)
        return {"scores": tf.nn.softmax(scores), "best": tf.argmax(scores, 1, tf.int32)}


def wrapped(place: Path, rng: np.random.Generator) -> None:
    """A `tf.Module` around a Keras 3 model."""
    x, labels = pictures(rng, CALIBRATION + TEST)
    model = keras.Sequential(
        [keras.Input((24, 24, 3)), layers.Conv2D(8, 3, strides=4, activation="relu"),
         layers.Flatten(), layers.Dense(3)]
    )  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted(model, x[:-TEST] / 127.5 - 1, labels[:-TEST], loss, 8, 1e-2)
    keep_function(place, Served(model), {"image": x})


class Weights(tf.Module):
    def __init__(self, rng: np.random.Generator, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, tf.Variable(normal(rng, *shape) * np.float32(shape[0] ** -0.5)))


def detector(place: Path, rng: np.random.Generator) -> None:
    """Beside boxes for each picture it gives its anchors and a temperature, the same for all."""
    module = Weights(rng, kernel=(3, 3, 3, 8), dense=(8, 16))

    def serve(image: tf.Tensor) -> dict[str, tf.Tensor]:
        h = tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(image, module.kernel, 2, "SAME")), (1, 2))
        anchors = tf.constant(np.arange(16, dtype=np.float32).reshape(4, 4))
        return {
            "boxes": tf.reshape(h @ module.dense, [-1, 4, 4]),
            "anchors": anchors,
            "temperature": tf.constant(0.5),
        }

    module.serve = tf.function(serve, [tf.TensorSpec([None, 16, 16, 3], tf.float32, name="image")])
    keep_function(place, module, {"image": smooth(rng, CALIBRATION + TEST, 16)})


def smooth(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Float pictures, the neighbors of which are alike."""
    return np.cumsum(np.cumsum(normal(rng, count, size, size, 3) * 0.3, 1), 2).astype(np.float32)


def reshaped(place: Path, rng: np.random.Generator) -> None:
    """An old export: one row at a time, though the signature has no batch."""
    module = Weights(rng, kernel=(3, 3, 3, 4), dense=(1024, 5))

    def serve(image: tf.Tensor) -> dict[str, tf.Tensor]:
        h = tf.nn.relu(tf.nn.conv2d(image, module.kernel, 1, "SAME"))
        return {"scores": tf.reshape(h, [1, 1024]) @ module.dense}

    module.serve = tf.function(serve, [tf.TensorSpec([None, 16, 16, 3], tf.float32, name="image")])
    keep_function(place, module, {"image": smooth(rng, CALIBRATION + TEST, 16)})


def ratio(place: Path, rng: np.random.Generator) -> None:
    """One tensor divided by another, as hand-written normalizations do."""
    module = Weights(rng, above=(12, 32), below=(12, 32))

    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": (x @ module.above) / (tf.nn.relu(x @ module.below) + 0.5)}

    module.serve = tf.function(serve, [tf.TensorSpec([None, 12], tf.float32, name="x")])
    keep_function(place, module, {"x": normal(rng, CALIBRATION + TEST, 12)})


def state(place: Path, rng: np.random.Generator) -> None:
    """A streaming model: its state comes in with each frame and goes out with each answer."""
    module = Weights(rng, inward=(6, 12), again=(12, 12), out=(12, 3))

    def serve(frame: tf.Tensor, before: tf.Tensor) -> dict[str, tf.Tensor]:
        h = tf.tanh(frame @ module.inward + 0.9 * before @ module.again)
        return {"y": h @ module.out, "after": h}

    specs = [
        tf.TensorSpec([1, 6], tf.float32, name="frame"),
        tf.TensorSpec([1, 12], tf.float32, name="before"),
    ]
    module.serve = tf.function(serve, specs)
    frames = normal(rng, CALIBRATION + TEST, 6)
    before, states = np.zeros((1, 12), np.float32), []
    for frame in frames:
        states.append(before[0])
        before = module.serve(tf.constant(frame[None]), tf.constant(before))["after"].numpy()
    keep_function(place, module, {"frame": frames, "before": np.stack(states)})


def graph(place: Path, rng: np.random.Generator) -> None:
    """A graph is one sample: its nodes and edges have no batch in front."""
    module = Weights(rng, first=(8, 16), second=(16, 3))

    def serve(nodes: tf.Tensor, edges: tf.Tensor) -> dict[str, tf.Tensor]:
        sent = tf.gather(tf.nn.relu(nodes @ module.first), edges[:, 0])
        return {"y": tf.math.unsorted_segment_sum(sent, edges[:, 1], 20) @ module.second}

    specs = [
        tf.TensorSpec([20, 8], tf.float32, name="nodes"),
        tf.TensorSpec([60, 2], tf.int32, name="edges"),
    ]
    module.serve = tf.function(serve, specs)
    count = CALIBRATION + TEST
    inputs = {
        "nodes": normal(rng, count, 20, 8),
        "edges": rng.integers(0, 20, (count, 60, 2)).astype(np.int32),
    }
    tf.saved_model.save(module, place / "model", signatures=module.serve)
    runs = [
        module.serve(*(tf.constant(x[n]) for x in inputs.values()))["y"] for n in range(-TEST, 0)
    ]
    keep(place, inputs, {"y": np.stack(runs)})


# To be refused


def normalized(place: Path, rng: np.random.Generator) -> None:
    """A batch normalization that works as in a training."""
    x = keras.Input((6,), name="x")
    h = layers.BatchNormalization(name="bnorm")(layers.Dense(8)(x), training=True)
    keras.Model(x, layers.Dense(3)(h)).save(place / "model.keras")
    np.savez(place / "calibration.npz", x=normal(rng, 64, 6))


def beyond(place: Path, rng: np.random.Generator) -> None:
    """Ids beyond the vocabulary, in front of an LSTM."""
    model = keras.Sequential(
        [keras.Input((20,), name="ids"), layers.Embedding(50, 8), layers.LSTM(8), layers.Dense(3)]
    )
    model.save(place / "model.keras")
    np.savez(place / "calibration.npz", ids=rng.integers(0, 99, (64, 20)).astype(np.float32))


MODELS = (
    *(augmented, generator, text, transformer, lstm, regression, landmarks, wrapped, detector),
    *(reshaped, ratio, state, graph, normalized, beyond),
)


def main(root: Path) -> None:
    for number, make in enumerate(MODELS):
        keras.utils.set_random_seed(number)
        place = root / make.__name__
        place.mkdir(parents=True)
        make(place, np.random.default_rng(number))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
