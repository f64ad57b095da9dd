"""Small models of every kind, made by the real libraries, and what those libraries say of them.

images.npz and calibration.npy are there. The outputs of the trained models are in
outputs/NAME.npy, and what TFLiteConverter makes by hand is by_hand/NAME.tflite.
"""

from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 10


def write(root: Path) -> None:
    import keras
    import tensorflow as tf
    import tf_keras

    images = np.load(root / "images.npz")["image"]
    (root / "outputs").mkdir()
    (root / "by_hand").mkdir()
    cnns(root, images, tf_keras, keras)
    keras_models(root, keras)
    recurrent_models(root, tf_keras)
    modules(root, tf)
    tflites(root, tf)


def cnn(library: Any) -> Any:
    """Conv, batch norm, ReLU6, depthwise, dense and softmax; input `image` (8, 8, 1)."""
    layers = library.layers
    library.utils.set_random_seed(7)
    image = layers.Input((8, 8, 1), name="image")
    x = layers.Conv2D(8, 3, padding="same", name="conv")(image)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.ReLU(6.0, name="relu6")(x)
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu", name="depthwise")(x)
    x = layers.MaxPooling2D(name="pool")(x)
    x = layers.Flatten(name="flat")(x)
    x = layers.Dense(32, activation="relu", name="hidden")(x)
    return library.Model(image, layers.Dense(CLASSES, activation="softmax", name="probs")(x))


def fitted(model: Any, images: np.ndarray) -> Any:
    """`model` trained to tell quarters of brightness apart, so that its outputs mean something."""
    labels = (images.mean(axis=(1, 2, 3)) * CLASSES).astype(np.int64).clip(0, CLASSES - 1)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.optimizer.learning_rate = 0.01
    model.fit(images, labels, epochs=40, batch_size=len(images), verbose=0)
    return model


def cnns(root: Path, images: np.ndarray, tf_keras: Any, keras: Any) -> None:
    """One CNN of each Keras, in every format that Keras saves."""
    legacy = fitted(cnn(tf_keras), images)
    legacy.export(str(root / "legacy"))
    legacy.save(root / "legacy.h5")
    legacy.save(root / "legacy.keras")
    np.save(root / "outputs" / "legacy.npy", legacy.predict(images, verbose=0))
    modern = fitted(cnn(keras), images)
    modern.export(str(root / "modern"), verbose=False)
    modern.save(root / "modern.keras")
    modern.save(root / "modern.h5")
    np.save(root / "outputs" / "modern.npy", modern.predict(images, verbose=0))
    # A layer whose training diverged.
    for weight in modern.trainable_weights[-2:]:
        weight.assign(np.full(weight.shape, np.nan, np.float32))
    modern.export(str(root / "nan_weights"), verbose=False)


def keras_models(root: Path, keras: Any) -> None:
    layers = keras.layers
    keras.utils.set_random_seed(11)
    left, right = layers.Input((6,), name="left"), layers.Input((4,), name="right")
    joined = layers.Dense(16, activation="relu")(layers.Concatenate()([left, right]))
    two = keras.Model([left, right], [layers.Dense(3)(joined), layers.Dense(2)(joined)])
    two.export(str(root / "two_inputs"), verbose=False)

    tokens = layers.Input((6,), dtype="int32", name="tokens")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(20, 16)(tokens))
    keras.Model(tokens, layers.Dense(4)(pooled)).export(str(root / "embedding"), verbose=False)

    image = layers.Input((8, 8, 1), name="image")
    x = layers.Conv2D(8, 3, activation=keras.ops.sin)(image)
    keras.Model(image, layers.Dense(5)(layers.Flatten()(x))).export(
        str(root / "sine"), verbose=False
    )

    steps = layers.Input((5, 8), name="steps")
    keras.Model(steps, layers.Dense(3)(layers.LSTM(8)(steps))).save(root / "lstm.keras")


def recurrent_models(root: Path, tf_keras: Any) -> None:
    layers = tf_keras.layers
    tf_keras.utils.set_random_seed(13)
    steps = layers.Input((5, 8), name="steps")
    model = tf_keras.Model(steps, layers.Dense(3)(layers.LSTM(8)(steps)))
    model.export(str(root / "lstm"))


def modules(root: Path, tf: Any) -> None:
    """Models without Keras."""
    from saved_functions import save, save_signatures

    rng = np.random.default_rng(3)
    first, second = (tf.Variable(rng.standard_normal((4, 3)).astype(np.float32)) for _ in range(2))
    rows = {"x": [None, 4]}
    save_signatures(
        root / "many",
        double=(lambda x: {"y": 2.0 * x}, rows),
        project=(lambda x: {"y": x @ first}, rows),
    )
    for name in ("fixed", *(f"versions/{version}" for version in (1, 2, 10))):
        save(root / name, lambda x: {"y": tf.nn.relu(x @ second)}, x=[3, 4])
    save(root / "weightless", lambda x: {"y": tf.nn.relu(x) + x}, **rows)
    # To be refused.
    save(root / "select_tf", lambda x: {"y": tf.linalg.inv(x)}, x=[None, 3, 3])
    save(root / "random", lambda x: {"y": x + tf.random.normal(tf.shape(x), seed=5)}, **rows)


def record_raw(path: Path) -> None:
    """Keep in `path` what the C++ converter last gave, before Python adds metadata to it."""
    from tensorflow.lite.python import convert

    original = convert.wrap_converter.wrapped_convert

    def recording(*arguments: Any) -> bytes:
        data: bytes = original(*arguments)
        path.write_bytes(data)
        return data

    convert.wrap_converter.wrapped_convert = recording


def tflites(root: Path, tf: Any) -> None:
    """What TFLiteConverter makes by hand, from the samples that edgeconv calibrates with."""
    calibration = np.load(root / "calibration.npy")
    lite = tf.lite
    raw = root / "raw.tflite"
    record_raw(raw)

    def made(model: str, name: str, **settings: Any) -> None:
        converter = lite.TFLiteConverter.from_saved_model(
            str(root / model), signature_keys=["serving_default"]
        )
        converter.exclude_conversion_metadata = True
        types = settings.pop("supported_types", None)
        operators = settings.pop("supported_ops", None)
        if types:
            converter.target_spec.supported_types = types
        if operators:
            converter.target_spec.supported_ops = operators
        for key, value in settings.items():
            setattr(converter, key, value)
        (root / "by_hand" / f"{name}.tflite").write_bytes(converter.convert())

    def feed() -> Any:
        for index in range(len(calibration)):
            yield "serving_default", {"image": calibration[index : index + 1]}

    quantized = {"optimizations": [lite.Optimize.DEFAULT]}
    made("legacy", "float32")
    raw.replace(root / "by_hand" / "float32_raw.tflite")
    made("legacy", "float16", **quantized, supported_types=[tf.float16])
    made("legacy", "dynamic", **quantized)
    made(
        "legacy",
        "int8",
        **quantized,
        representative_dataset=feed,
        supported_ops=[lite.OpsSet.TFLITE_BUILTINS_INT8],
        inference_input_type=tf.int8,
        inference_output_type=tf.uint8,
    )
    made(
        "select_tf",
        "select_tf",
        supported_ops=[lite.OpsSet.TFLITE_BUILTINS, lite.OpsSet.SELECT_TF_OPS],
    )
    made("nan_weights", "nan_weights")
