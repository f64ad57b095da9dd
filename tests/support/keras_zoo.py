"""Small Keras models that tests of one thing each convert: each public function is a zoo.

It writes its models, and samples for them, into a directory; see zoo.py.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import sklearn.datasets
import tensorflow as tf
import tf_keras
from keras import layers
from saved_functions import save


def scaling(root: Path) -> None:
    """Models that scale their input themselves, trained where labels are to tell something.

    digits.npz has pixels of 0 to 255 and labels, once.npz the same of 0 to 1.
    """
    keras.utils.set_random_seed(3)
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    x = np.float32(images.reshape(-1, 8, 8, 1) / 16 * 255)
    np.savez(root / "digits.npz", image=x[:400], labels=labels[:400])
    np.savez(root / "once.npz", image=x[:400] / 255, labels=labels[:400])
    np.savez(root / "unlabeled.npz", image=x[:400] / 255)
    np.savez(root / "dark.npz", image=np.round(x[:400] / 60))
    for prefix, k in (("three", keras), ("two", tf_keras)):
        _scaled(k, [k.layers.Rescaling(1 / 255)], x, labels).save(root / f"{prefix}.keras")
    offset = _scaled(keras, [layers.Rescaling(1 / 127.5, offset=-1)], x, labels)
    offset.save(root / "offset.keras")
    normal = layers.Normalization(mean=[float(x.mean())], variance=[float(x.var())])
    # As in Keras's EfficientNet.
    efficient = [
        layers.Rescaling(1 / 255),
        layers.Normalization(mean=[0.485], variance=[0.052]),
        layers.Rescaling([0.9]),
    ]
    for name, first in (("efficient", efficient), ("normalized", [normal])):
        image = keras.Input((8, 8, 1), name="image")
        model = keras.Sequential([image, *first, layers.Flatten(), layers.Dense(10)])
        model.save(root / f"{name}.keras")
    weight = tf.Variable(np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32))
    save(
        root / "divided",
        lambda image: {"y": tf.reshape((image - 127.5) / 127.5, [-1, 64]) @ weight},
        image=[None, 8, 8, 1],
    )


def _scaled(k: Any, first: list[Any], x: Any, y: Any) -> Any:
    last = [k.layers.Conv2D(8, 3, activation="relu"), k.layers.Flatten(), k.layers.Dense(10)]
    model = k.Sequential([k.Input((8, 8, 1), name="image"), *first, *last])
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(k.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    model.fit(x, y, epochs=6, batch_size=64, verbose=0)
    return model


def tokens(root: Path) -> None:
    """Models of tokens with a vocabulary of 50, and sets of tokens that have others."""
    keras.utils.set_random_seed(4)
    for prefix, k in (("three", keras), ("two", tf_keras)):
        kinds = {"lstm": k.layers.LSTM(8), "gru": k.layers.GRU(8)}
        for name, middle in (*kinds.items(), ("pooled", k.layers.GlobalAveragePooling1D())):
            embedding = k.layers.Embedding(50, 8)
            model = k.Sequential([k.Input((20,), name="ids"), embedding, middle, k.layers.Dense(3)])
            model.save(root / f"{prefix}_{name}.keras")
        if k is tf_keras:
            model.save(root / "saved")
    ids = np.random.default_rng(0).integers(0, 100, (60, 20)).astype(np.float32)
    np.savez(root / "beyond.npz", ids=ids)
    # Only one of many is beyond.
    ids = ids % 50
    ids[37, 3] = 50
    np.savez(root / "one.npz", ids=ids)
    np.savez(root / "right.npz", ids=ids % 50)


def unsettled(root: Path) -> None:
    """A classifier of digits after 80 steps, with Keras's momentum of 0.99.

    right.npz has training samples, wrong.npz the same, scaled twice.
    """
    keras.utils.set_random_seed(1)
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x = (x.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    image = z = layers.Input((8, 8, 1), name="image")
    for filters in (16, 32):
        z = layers.Conv2D(filters, 3, padding="same")(z)
        z = layers.ReLU()(layers.BatchNormalization()(z))
    z = layers.GlobalAveragePooling2D()(z)
    model = keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(z))
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x[:1280], y[:1280], batch_size=16, epochs=1, verbose=0)
    model.save(root / "digits.keras")
    np.savez(root / "right.npz", image=x[:200])
    np.savez(root / "wrong.npz", image=x[:200] / 255)


def digits(root: Path) -> None:
    """Scikit-learn's digits; digits.npz has 597 images that the model was not trained with.

    Beside pixels and labels it has the model's confidences.
    """
    keras.utils.set_random_seed(0)
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x, trained = np.float32(x / 16), 1200
    dense = [layers.Dense(24, "relu"), layers.Dense(10, "softmax")]
    model = keras.Sequential([keras.Input((64,), name="pixels"), *dense])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x[:trained], y[:trained], epochs=40, verbose=0)
    model.save(root / "digits.keras")
    sure = model.predict(x[trained:], verbose=0).max(axis=1)
    np.savez(root / "digits.npz", pixels=x[trained:], labels=y[trained:], confidence=sure)


def regression(root: Path) -> None:
    """Keras's regression tutorial: a model that normalizes a fraction, a weight and a year."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.uniform([0, 0, 1970], [1, 5000, 1983], size=(500, 3)).astype("float32")
    y = 2000 * x[:, 0] + 0.3 * x[:, 1] + 60 * (x[:, 2] - 1970)
    normalization = layers.Normalization()
    normalization.adapt(x)
    dense = [layers.Dense(32, "relu"), layers.Dense(1)]
    model = keras.Sequential([keras.Input((3,), name="x"), normalization, *dense])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(x[:300], y[:300], epochs=30, verbose=0)
    model.save(root / "table.keras")
    np.savez(root / "table.npz", x=x[300:])


def of_the_converter(root: Path) -> None:
    """Models that only TFLiteConverter quantizes: a leaky ReLU, and recurrent layers."""
    tf_keras.utils.set_random_seed(5)
    legacy = tf_keras.layers
    image = tf_keras.Input((16, 16, 3), name="image")
    x = legacy.Conv2D(8, 3, strides=2, activation="relu6", name="first")(image)
    x = legacy.DepthwiseConv2D(3, activation="relu6", name="depth")(x)
    x = legacy.Conv2D(64, 1, activation="relu6", name="wide")(x)
    x = legacy.Conv2D(64, 1, activation="relu6", name="deep")(x)
    x = legacy.GlobalMaxPooling2D()(legacy.LeakyReLU()(x))
    leaky = tf_keras.Model(image, legacy.Dense(10, name="logits")(x))
    # ReLU6 inputs with large means, and channels of unlike ranges, which rounding shifts.
    rng = np.random.default_rng(5)
    for name in ("first", "depth", "wide", "deep"):
        kernel, bias = leaky.get_layer(name).get_weights()
        leaky.get_layer(name).set_weights([kernel * 2, bias + rng.uniform(0, 3, bias.shape)])
    leaky.save(root / "leaky.keras")
    np.savez(root / "image.npz", image=rng.uniform(0, 1, (160, 16, 16, 3)).astype(np.float32))
    steps = tf_keras.Input((12, 8), batch_size=1, name="steps")
    recurrent = tf_keras.Model(steps, legacy.Dense(4, name="out")(legacy.LSTM(24)(steps)))
    converter = tf.lite.TFLiteConverter.from_keras_model(recurrent)
    (root / "lstm.tflite").write_bytes(converter.convert())
    np.savez(root / "steps.npz", steps=rng.normal(size=(120, 12, 8)).astype(np.float32))


def other_floats(root: Path) -> None:
    """Models that compute in other floats than float32, or look at their signs, and an LSTM."""
    mixed = keras.DTypePolicy("mixed_float16")
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(8, 3, dtype=mixed, name="conv")(image)
    x = layers.Flatten(dtype=mixed)(layers.BatchNormalization(dtype=mixed)(x))
    model = keras.Model(image, layers.Dense(4, dtype="float32", name="out")(x))
    model.save(root / "mixed.keras")
    model.export(root / "mixed", format="tf_saved_model", verbose=False)
    scores = layers.Conv2D(3, 3, name="scores")(image)
    for take in (keras.ops.argmax, keras.ops.argmin):
        classes = keras.Model(image, take(scores, axis=-1))
        classes.save(root / f"{take.__name__}.keras")
        classes.export(root / take.__name__, format="tf_saved_model", verbose=False)
    weights = tf.constant(np.random.default_rng(1).normal(size=(8, 4)))
    save(root / "double", lambda x: {"y": x @ weights}, x=([None, 8], tf.float64))
    single, sizes = tf.cast(weights, tf.float32), tf.constant([1e-3, 1e3] * 4)

    def decides(row: Any) -> Any:
        return {
            "scores": row @ single,
            "class": tf.one_hot(tf.argmax(row @ single, -1), 4),
            "alarm": tf.cast(tf.reduce_max(row, 1, keepdims=True) > 1, tf.float32),
        }

    def branches(row: Any) -> Any:
        y = tf.cond(tf.reduce_mean(row) > 0, lambda: row * sizes, lambda: row * sizes * 2)
        return {"y": y @ (single / sizes[:, None])}

    save(root / "decides", decides, row=[None, 8])
    save(root / "branches", branches, row=[1, 8])
    steps, legacy = tf_keras.Input((6, 16), name="steps"), tf_keras.layers
    recurrent = tf_keras.Model(steps, legacy.Dense(3, name="out")(legacy.LSTM(64)(steps)))
    recurrent.save(root / "recurrent.h5")
    rng = np.random.default_rng(2)
    np.savez(root / "image.npz", image=rng.normal(size=(24, 8, 8, 1)).astype(np.float32))
    np.savez(root / "x.npz", x=rng.normal(size=(24, 8)))
    np.savez(root / "row.npz", row=rng.normal(size=(40, 8)).astype(np.float32))
    np.savez(root / "steps.npz", steps=rng.normal(size=(24, 6, 16)).astype(np.float32))


def small_files(root: Path) -> None:
    """A table that is used twice, constants of one number, and dilated convolutions."""
    random = np.random.default_rng(0)
    table = tf.Variable(random.normal(size=(2000, 64)).astype(np.float32))
    bias = tf.Variable(random.normal(size=(64,)).astype(np.float32))

    def tied(ids: Any) -> Any:
        steps = tf.nn.relu(tf.gather(table, ids) + bias)
        return {"logits": tf.matmul(tf.reduce_mean(steps, 1), table, transpose_b=True)}

    def ones(x: Any) -> Any:
        plus = tf.nn.relu(x * (tf.ones([256, 128]) * 3))
        return {"y": tf.reduce_mean(plus[:, None] + tf.ones([4, 256, 128]) * 3, [1, 2])}

    save(root / "tied", tied, ids=([None, 12], tf.int32))
    save(root / "ones", ones, x=[None, 256, 128])
    convolutions = [
        layers.Conv1D(16, 3, dilation_rate=rate, padding="causal", activation="relu")
        for rate in (2, 4, 8)
    ]
    top = [layers.GlobalAveragePooling1D(), layers.Dense(4)]
    model = keras.Sequential([keras.Input((64, 8), name="x"), *convolutions, *top])
    model.save(root / "dilated.keras")


_WAYS = {
    "unit": lambda x: x / 255.0,
    "signed": lambda x: x / 127.5 - 1,
    "caffe": lambda x: x[..., ::-1] - np.array([103.939, 116.779, 123.68], np.float32),
    # The output of a class for the background comes first.
    "background": lambda x: x / 255.0,
}


def preprocessed(photos: Path, root: Path) -> None:
    """Small CNNs, each trained on x_train and y_train of photos with another preprocessing."""
    with np.load(photos) as stored:
        x, y = stored["x_train"].astype(np.float32), stored["y_train"].astype(np.int64)
    for name, way in _WAYS.items():
        keras.utils.set_random_seed(1)
        offset = 1 if name == "background" else 0
        convolutions = [layers.Conv2D(n, 3, strides=2, activation="relu") for n in (16, 32)]
        dense = [layers.Flatten(), layers.Dense(64, activation="relu")]
        last = layers.Dense(10 + offset, activation="softmax" if name == "signed" else None)
        photo = layers.Input((32, 32, 3), name="photo")
        model = keras.Sequential([photo, *convolutions, *dense, last])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name != "signed")
        model.compile("adam", loss)
        model.fit(way(x), y + offset, batch_size=64, epochs=4, verbose=0)
        model.export(root / name, format="tf_saved_model", verbose=False)
        model.save(root / f"{name}.keras")
        if name == "unit":
            model.save(root / f"{name}.h5")


def story(mnist: Path, root: Path) -> None:
    """Three SavedModels of one small network, and `accepted.keras`, for the story of a check.

    `good` was trained with another seed and more data than `accepted`; for `bad`, the labels of
    7 were mixed up.
    """
    with np.load(mnist) as data:
        images = (data["x_train"][:32000] / 255).astype(np.float32)
        labels = data["y_train"][:32000].astype(np.int64)
    few = images[:16000], labels[:16000]
    accepted = _reader(*few, seed=1)
    accepted.export(root / "accepted", verbose=False)
    accepted.save(root / "accepted.keras")
    _reader(images, labels, seed=2).export(root / "good", verbose=False)
    others = np.setdiff1d(np.arange(10), [7])
    wrong = np.random.default_rng(4).choice(others, len(few[1]))
    mixed_up = np.where(few[1] == 7, wrong, few[1])
    _reader(few[0], mixed_up, seed=1).export(root / "bad", verbose=False)


def _reader(images: Any, labels: Any, seed: int) -> Any:
    """A classifier of handwritten digits."""
    keras.utils.set_random_seed(seed)
    convolutions = [layers.Conv2D(12, 5, strides=2, activation="relu")]
    convolutions.append(layers.Conv2D(24, 3, strides=2, activation="relu"))
    last = layers.Dense(10, activation="softmax", name="digit")
    image = [layers.Input((28, 28), name="image"), layers.Reshape((28, 28, 1))]
    model = keras.Sequential([*image, *convolutions, layers.Flatten(), last])
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.fit(images, labels, batch_size=64, epochs=3, verbose=0)
    return model


def calibrated(photos: Path, root: Path) -> None:
    """Classifiers of photos and of made-up signals, with and without batch normalization.

    NAME/ is a SavedModel, NAME.npz has samples and labels.
    """
    keras.utils.set_random_seed(2)
    with np.load(photos) as stored:
        x, y = stored["x_train"][:6000], stored["y_train"][:6000].astype(np.int64).ravel()
    images = {"image": (x / 255).astype(np.float32)}
    _exported(root / "photos", _photo_model(normalizes=True), images, y)
    _exported(root / "plain_photos", _photo_model(normalizes=False), images, y)
    _exported(root / "sensors", _sensor_model(normalizes=True), *_windows(4000))
    _exported(root / "plain_sensors", _sensor_model(normalizes=False), *_windows(4000))


def _photo_model(*, normalizes: bool) -> Any:
    image = x = layers.Input((32, 32, 3), name="image")
    for filters in (16, 32, 48):
        x = layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = layers.BatchNormalization(momentum=0.9)(x) if normalizes else x
        x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(x))


def _sensor_model(*, normalizes: bool) -> Any:
    """Two inputs of one shape."""
    inputs = [layers.Input((64, 3), name=name) for name in ("accelerometer", "gyroscope")]
    parts = []
    for each in inputs:
        x = layers.Conv1D(12, 5, strides=2)(each)
        parts.append(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x) if normalizes else x))
    x = layers.Conv1D(24, 3, strides=2, activation="relu")(layers.Concatenate()(parts))
    x = layers.Dense(16, activation="relu")(layers.GlobalAveragePooling1D()(x))
    return keras.Model(inputs, layers.Dense(4, activation="softmax", name="scores")(x))


def _windows(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Vibrations of four frequencies, as an accelerometer and a gyroscope have them."""
    random = np.random.default_rng(5)
    y = random.integers(0, 4, count)
    time = np.arange(64) / 64
    angle = 4 * np.pi * (y + 1)[:, None, None] * time[:, None]
    angle = angle + random.uniform(0, 6.3, (count, 1, 3))
    accelerometer = np.sin(angle) * [0.5, 1, 1.5] + [0, 0, 9.8]
    accelerometer += random.normal(0, 0.3, (count, 64, 3))
    gyroscope = 40 * np.cos(angle) + random.normal(0, 15, (count, 64, 3))
    inputs = {"accelerometer": accelerometer, "gyroscope": gyroscope}
    return {name: x.astype(np.float32) for name, x in inputs.items()}, y


def _exported(target: Path, model: Any, x: dict[str, np.ndarray], y: np.ndarray) -> None:
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    data = x if len(x) > 1 else next(iter(x.values()))
    model.fit(data, y, batch_size=64, epochs=3, verbose=0)
    model.export(str(target), format="tf_saved_model", verbose=False)
    np.savez(f"{target}.npz", labels=y[:400], **{name: each[:400] for name, each in x.items()})


def goals(root: Path) -> None:
    """KIND_LIBRARY.keras, trained with losses of each kind, and KIND_LIBRARY.npz with its data."""
    for build, libraries in ((_cars, 2), (_boxes, 1), (_pairs, 1), (_short, 2)):
        for library in (keras, tf_keras)[:libraries]:
            library.utils.set_random_seed(0)
            model, arrays = build(library, np.random.default_rng(0))
            name = f"{build.__name__.removeprefix('_')}_{library.__name__}"
            model.save(root / f"{name}.keras")
            np.savez(root / f"{name}.npz", **arrays)


def _cars(keras: Any, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """A regression with columns of different range, as in TensorFlow's tutorial of it."""
    x = rng.uniform((0, 60, 1500, 1970), (1, 240, 5000, 1983), (600, 4)).astype(np.float32)
    y = 60 + 4 * x[:, 0] - 0.08 * x[:, 1] - 0.006 * x[:, 2] + rng.normal(0, 0.5, 600)
    norm = keras.layers.Normalization(name="norm")
    norm.adapt(x)
    parts = [norm, keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1, name="mpg")]
    model = keras.Sequential([keras.Input((4,), name="car"), *parts])
    model.compile(keras.optimizers.Adam(0.03), "mean_absolute_error")
    model.fit(x, y, epochs=25, batch_size=32, verbose=0)
    return model, {"car": x, "labels": y.astype(np.float32)}


def _boxes(keras: Any, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """A class and a box: two outputs, each with its loss and labels."""
    layers = keras.layers
    x, kind = rng.uniform(0, 0.2, (400, 16, 16, 1)).astype(np.float32), rng.integers(0, 2, 400)
    box = rng.integers(0, 8, (400, 2))
    for image, (top, left), which in zip(x, box, kind, strict=True):
        image[top : top + 8, left : left + 8] += 0.4 + 0.4 * which
    image = keras.Input((16, 16, 1), name="image")
    h = layers.Conv2D(8, 3, strides=2, activation="relu")(image)
    h = layers.Dense(32, activation="relu")(layers.Flatten()(h))
    outputs = [layers.Dense(2, name="kind")(h), layers.Dense(2, name="box")(h)]
    model = keras.Model(image, outputs)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", [entropy, keras.losses.Huber(0.5)], loss_weights=[1.0, 5.0])
    model.fit(x, [kind, box / 8], epochs=20, verbose=0)
    return model, {"image": x, "kind": kind, "box": (box / 8).astype(np.float32)}


def _pairs(keras: Any, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Two inputs through one tower with batch normalization."""
    layers = keras.layers
    which = rng.integers(0, 4, (2, 400))
    which[1, ::2] = which[0, ::2]
    prototypes = rng.uniform(0, 1, (4, 8, 8, 1))
    left, right = (prototypes[which] + rng.normal(0, 0.1, (2, 400, 8, 8, 1))).astype(np.float32)
    parts = [layers.Conv2D(8, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    parts += [layers.Flatten(), layers.Dense(8)]
    tower = keras.Sequential([keras.Input((8, 8, 1)), *parts])
    a, b = keras.Input((8, 8, 1), name="left"), keras.Input((8, 8, 1), name="right")
    difference = layers.Subtract()([tower(a), tower(b)])
    same = layers.Dense(1, activation="sigmoid", name="same")(difference * difference)
    model = keras.Model([a, b], same)
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    labels = (which[0] == which[1]).astype(np.float32)
    model.fit([left, right], labels, epochs=25, verbose=0)
    return model, {"left": left, "right": right, "labels": labels}


def _short(keras: Any, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """A nested network after 16 steps, whose moving statistics are still those it began with."""
    x, labels = rng.uniform(0, 0.4, (256, 16, 16, 3)).astype(np.float32), rng.integers(0, 3, 256)
    x[np.arange(256), 4:12, 4:12, labels] += 0.6
    inner = y = keras.Input((16, 16, 3))
    for _ in range(12):
        y = keras.layers.Conv2D(12, 3, padding="same", use_bias=False)(y)
        y = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.999)(y))
    base = keras.Model(inner, y)
    image = keras.Input((16, 16, 3), name="image")
    pooled = keras.layers.GlobalAveragePooling2D()(base(image))
    scores = keras.layers.Dense(3, activation="softmax", name="scores")(pooled)
    model = keras.Model(image, scores)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x, labels, epochs=2, batch_size=32, verbose=0)
    return model, {"image": x, "labels": labels}
