"""Models whose conversion is refused with advice, and what they become by it."""

import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from saved_functions import save, save_signatures
from tensorflow.core.protobuf import saved_model_pb2
from tiny_tflite import Graph, packed

layers = keras.layers
RNG = np.random.default_rng(4)
WORDS = ["a", "bb", "ccc"]
# Layers that only their own code knows; some of it does not convert.
LAYER = """\
import {keras} as keras

class {name}(keras.layers.Layer):
    def compute_output_shape(self, shape):
        return shape

    def call(self, x{takes}):
        {code}
"""
NOISE = "x + keras.random.normal(keras.ops.shape(x))"
CODE = {
    "layers_of_mine": ("keras", "Twice", "", "return x * 2"),
    "named/types": ("keras", "Twice", "", "return x * 2"),
    "layers_of_tf_keras": ("tf_keras", "Twice", "", "return x * 2"),
    "noise": ("keras", "Noise", "", f"return {NOISE}"),
    "noise_in_training": (
        *("keras", "Noise", ", training=False"),
        f"return {NOISE} if training else x",
    ),
    "choice": ("keras", "Choice", "", "return x if keras.ops.sum(x) > 0 else -x"),
    "choice_of_tensors": (
        *("keras", "Choice", ""),
        "return keras.ops.where(keras.ops.sum(x, -1, keepdims=True) > 0, x, -x)",
    ),
}
# A model that is code.
CODED = '''\
import keras

class Coded(keras.Model):
    def __init__(self, **others):
        super().__init__(**others)
        self.hidden, self.last = keras.layers.Dense(8, "relu"), keras.layers.Dense(4)
        self.hidden.build((None, 12))
        self.last.build((None, 8))

    def call(self, x):
        return self.last(self.hidden(x))

    def get_build_config(self):
        """So that its file does not say which inputs it was built for."""
'''


class CodedInTfKeras(tf_keras.Model):  # type: ignore[misc]
    """A model that is code, of which a SavedModel has the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last = tf_keras.layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.last(x)


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


def pooled(*, slices: bool) -> keras.Model:
    """The largest of each 2 × 2 × 2 values, at once or in two steps."""
    x = keras.Input((4, 6, 6, 2), name="volume")
    if slices:
        y = layers.TimeDistributed(layers.MaxPooling2D())(x)
        y = keras.ops.maximum(y[:, ::2], y[:, 1::2])
    else:
        y = layers.MaxPooling3D()(x)
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


def of_words(root: Path) -> None:
    """Rows of a table, by words in ways that TFLite has and has not."""
    rows = tf.constant(floats(32, 4))
    index, numbers = table(tf.int64, [0, 1, 2], 3), table(tf.float32, [0.5, 1.5, 2.5], -1.0)
    word = ([None], tf.string)
    hashed = tf.strings.to_hash_bucket_fast
    save(root / "hashed", lambda word: {"y": tf.gather(rows, hashed(word, 32))}, word=word)
    lower = tf.strings.lower
    save(
        root / "lowered", lambda word: {"y": tf.gather(rows, index.lookup(lower(word)))}, word=word
    )
    save(root / "by_number", lambda n: {"y": tf.gather(rows, n)}, n=([None], tf.int64))
    save(root / "by_index", lambda word: {"y": tf.gather(rows, index.lookup(word))}, word=word)
    ids, count = ([None, 3], tf.int32), tf.math.bincount

    def of(counted: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., dict[str, tf.Tensor]]:
        return lambda ids: {"y": counted(ids) @ rows}

    counts = of(lambda ids: count(ids, minlength=32, maxlength=32, axis=-1, dtype=tf.float32))
    save(root / "counts", counts, ids=ids)
    save(root / "sums", of(lambda ids: tf.reduce_sum(tf.one_hot(ids, 32), 1)), ids=ids)
    save(root / "largest", of(lambda ids: tf.reduce_max(tf.one_hot(ids, 32), 1)), ids=ids)
    save(root / "numbers", lambda word: {"y": numbers.lookup(word)[:, None] * rows[:1]}, word=word)


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
    save(root / "combined", combined, **specs)
    save(root / "padded", padded, **specs)
    corners = RNG.random((20, 10, 2)) * 0.5
    boxes = np.concatenate([corners, corners + 0.1 + 0.4 * RNG.random((20, 10, 2))], -1)
    scores = RNG.random((20, 10, 2)).astype(np.float32)
    np.savez(root / "boxes.npz", boxes=boxes.astype(np.float32), scores=scores)


def answering(function: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., dict[str, tf.Tensor]]:
    """The function with its output named."""
    return lambda x: {"y": function(x)}


def of_operators(root: Path) -> None:
    """Operators without an integer kernel, or without any; and what does the same."""
    weights = tf.constant(floats(12, 8, by=0.4))
    large, exponents = weights * 100, tf.constant(np.abs(floats(12)) + 0.5)
    ones = [[1, 1]] * 2

    def pads(x: tf.Tensor) -> tf.Tensor:
        return tf.pad(tf.reshape(x, [-1, 2, 2, 3, 1, 1, 1]), [[0, 0], *ones, *[[0, 0]] * 4])

    def pads_four(x: tf.Tensor) -> tf.Tensor:
        return tf.pad(tf.reshape(x, [-1, 2, 2, 3]), [[0, 0], *ones, [0, 0]])

    functions: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "squares": lambda x: tf.minimum(tf.square(x @ weights), 3.0),
        "sines": lambda x: tf.sin(x) @ weights,
        "plain": lambda x: x @ weights,
        "centered": lambda x: (x - tf.reduce_mean(x, 0)) @ weights,
        "powers": lambda x: tf.pow(tf.abs(x), exponents) @ weights,
        "logarithms": lambda x: tf.exp(exponents * tf.math.log(tf.abs(x) + 1e-3)) @ weights,
        "powers_alone": lambda x: tf.pow(tf.abs(x), exponents),
        "far_from_zero": lambda x: (tf.nn.relu(x + 1e3) - 1e3) @ weights,
        "very_far": lambda x: (tf.nn.relu(x + 1e5) - 1e5) @ weights,
        "overflowing": lambda x: 1 / (1 + tf.exp(x @ large)),
        "saturating": lambda x: tf.sigmoid(-(x @ large)),
        "bessel": lambda x: tf.math.bessel_i0(x) @ weights,
        "series": lambda x: (1 + x * x / 4 + x * x * x * x / 64) @ weights,
        "angles": lambda x: tf.atan2(x @ weights, 0.5),
        "angles_of_equal": lambda x: tf.atan2(x @ weights, tf.ones_like(x @ weights) / 2),
        "pads": lambda x: tf.reshape(pads(x), [-1, 48]),
        "pads_four": lambda x: tf.reshape(pads_four(x), [-1, 48]),
        "asserting": lambda x: (tf.debugging.assert_less(x, -9.0), x @ weights)[1],
        "random": lambda x: x @ weights + tf.random.normal([8]),
    }
    for name, function in functions.items():
        save(root / name, answering(function), x=([None, 12], tf.float32))
    shapes = {"x": ([None, 12], tf.float32), "noise": ([None, 8], tf.float32)}
    save(root / "random_as_input", lambda x, noise: {"y": x @ weights + noise}, **shapes)


def of_layers(root: Path) -> None:
    """Keras files that do not load as they are, and what their authors can give instead."""
    (root / "named").mkdir()
    for name, (library, kind, takes, code) in CODE.items():
        text = LAYER.format(keras=library, name=kind, takes=takes, code=code)
        (root / f"{name}.py").write_text(text, encoding="utf-8")
    (root / "coded.py").write_text(CODED, encoding="utf-8")
    sys.path.insert(0, str(root))
    import choice_of_tensors  # type: ignore[import-not-found]
    import coded  # type: ignore[import-not-found]
    import layers_of_mine  # type: ignore[import-not-found]
    import layers_of_tf_keras  # type: ignore[import-not-found]
    import noise_in_training  # type: ignore[import-not-found]

    kinds = {"noise": noise_in_training.Noise(), "choice": choice_of_tensors.Choice()}
    for name, layer in kinds.items():
        before = [keras.Input((12,), name="x"), layers.Dense(4), layer]
        keras.Sequential(before).save(root / f"{name}.keras")
    inside = [layers_of_tf_keras.Twice(), tf_keras.layers.Dense(4)]
    tf_keras.Sequential([tf_keras.Input((12,), name="x"), *inside]).save(root / "own_of_tf.keras")
    model = coded.Coded()
    model(floats(1, 12))
    model.save(root / "coded.keras")
    model.export(root / "coded", verbose=False)
    same = [keras.Input((12,), name="x"), layers.Dense(8, "relu"), layers.Dense(4)]
    keras.Sequential(same).save(root / "functional.keras")
    for name, layer in (("umlaut", "größe"), ("ascii", "size")):
        keras.Sequential([keras.Input((12,), name="x"), layers.Dense(4, name=layer)]).save(
            root / f"{name}.keras"
        )
    x = keras.Input((12,), name="x")
    for name, training in (("always_training", True), ("inference", None)):
        y = layers.BatchNormalization()(layers.Dense(4)(x), training=training)
        keras.Model(x, y).save(root / f"{name}.keras")
    keras.Sequential([keras.Input(batch_shape=(2, 12), name="x"), layers.Dense(4)]).save(
        root / "pairs.keras"
    )
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
    """Models of two outputs, and of an operation that does not train; and labels."""
    x = keras.Input((12,), name="x")
    hidden = layers.Dense(8, "relu")(x)
    kind, size = layers.Dense(3, "softmax", name="kind"), layers.Dense(1, name="size")
    keras.Model(x, [kind(hidden), size(hidden)]).save(root / "two.keras")
    matrix = np.eye(hidden.shape[-1], dtype=np.float32) + 0.1
    middles = {
        "matrix": lambda tensor: keras.ops.matmul(tensor, matrix),
        "tanh": layers.Activation("tanh"),
        "normed": layers.LayerNormalization(),
    }
    for name, middle in middles.items():
        keras.Model(x, layers.Dense(2)(middle(hidden))).save(root / f"{name}.keras")
    keras.saving.load_model(root / "tanh.keras").export(root / "tanh", verbose=False)
    keras.Model(x, layers.LayerNormalization()(x)).save(root / "only_normed.keras")
    classifier = keras.Model(x, layers.Dense(3, "softmax")(hidden))
    classifier.save(root / "classes.keras")
    series = keras.Input((6, 2), name="x")
    keras.Model(series, layers.Dense(2)(layers.LSTM(4)(series))).save(root / "lstm.keras")
    inner = keras.Model(series, layers.GlobalAveragePooling1D()(layers.Dense(4)(series)))
    outside = keras.Input((6, 2), name="x")
    seen = keras.ops.any(keras.ops.not_equal(outside, 0), axis=-1)
    for name, mask in (("masked", {"mask": seen}), ("unmasked", {})):
        keras.Model(outside, layers.Dense(2)(inner(outside, **mask))).save(root / f"{name}.keras")
    np.savez(root / "series.npz", x=floats(40, 6, 2))
    code = [tf_keras.layers.Dense(4), tf_keras.layers.Lambda(lambda x: x * 2)]
    for name, parts in (("code_of_tf", code), ("layers_of_tf", code[:1])):
        model = tf_keras.Sequential([tf_keras.Input((12,), name="x"), *parts])
        model.save(root / name, save_format="tf")
        model.save(root / f"{name}.keras")
    coded = CodedInTfKeras()
    coded(tf.zeros((2, 12)))
    coded.save(root / "coded_of_tf", save_format="tf")
    shutil.copytree(root / "layers_of_tf", root / "cut_layers")
    metadata = root / "cut_layers" / "keras_metadata.pb"
    metadata.write_bytes(metadata.read_bytes()[:50])
    values, kinds = floats(40, 12), RNG.integers(0, 3, 40)
    many = floats(600, 12)
    answers = classifier.predict(many, verbose=0).argmax(-1)
    for name, first in (("from_0", 0), ("from_1", 1)):
        np.savez(root / f"{name}.npz", x=many, labels=answers + first)
    np.savez(root / "right_labels.npz", x=values, labels=floats(40, 2))
    np.savez(root / "one_label.npz", x=values, labels=kinds)
    np.savez(root / "two_labels.npz", x=values, kind=kinds, size=floats(40, 1))
    np.savez(root / "seven_labels.npz", x=values, labels=floats(40, 7))


def of_signatures(root: Path) -> None:
    """A model of two signatures."""
    weights = tf.Variable(floats(12, 4))
    serve = (lambda x: {"y": x @ weights}, {"x": [None, 12]})
    save_signatures(root / "two_signatures", a=serve, b=serve)


def of_flatbuffers(root: Path) -> None:
    """A .tflite in float16, and one with an operator that no runtime has."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(root / "plain"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    (root / "half.tflite").write_bytes(converter.convert())
    for name, operator in (("custom", "MineAlone"), ("builtin", "ABS"), ("nameless", "ABS")):
        graph, key = Graph(), "" if name == "nameless" else "serving_default"
        x, y = (graph.tensor(each, (1, 12), "float32") for each in "xy")
        graph.operator(operator, [x], [y])
        model = graph.model([x], [y], signature=(key, ["x"], ["y"]))
        (root / f"{name}.tflite").write_bytes(packed(model))


def of_damage(root: Path) -> None:
    """A model, and one whose file of variables was cut off on its way."""
    weights = tf.Variable(floats(12, 300))
    save(root / "whole", lambda x: {"y": x @ weights}, x=[None, 12])
    for name in ("cut", "newer"):
        shutil.copytree(root / "whole", root / name)
    (variables,) = (root / "cut" / "variables").glob("*.data*")
    variables.write_bytes(variables.read_bytes()[:100])
    graph = root / "newer" / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
    content.meta_graphs[0].graph_def.versions.min_consumer = 10**6
    graph.write_bytes(content.SerializeToString())
    # A layer has a setting that this Keras does not have yet.
    with (
        zipfile.ZipFile(root / "dense.keras") as old,
        zipfile.ZipFile(root / "future.keras", "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name).replace(b'"units": 4', b'"units": 4, "sparsity": 2')
            new.writestr(name, data)
    keras.saving.load_model(root / "dense.keras").export(root / "dense", verbose=False)
    of_files(root)
    of_copies(root)
    of_signatures_that_do_not_run(root)


def of_copies(root: Path) -> None:
    """Files that are not what their names say, and SavedModels that were copied in part."""
    dense(1.0).save_weights(root / "only.weights.h5")
    whole = (root / "dense.keras").read_bytes()
    contents = {
        "halved.keras": whole[: len(whole) // 2],
        "noise.tflite": b"1234TFL3" + bytes(range(64)),
        "garbled.keras": b"not a model",
        "misnamed.tflite": whole,
    }
    for name, content in contents.items():
        (root / name).write_bytes(content)
    for name, member, content in (("other", "a.txt", "a"), ("no_json", "config.json", "{")):
        with zipfile.ZipFile(root / f"{name}.keras", "w") as archive:
            archive.writestr(member, content)
    (root / "folder").mkdir()
    shutil.copy(root / "dense.keras", root / "folder")
    for name in ("no_variables", "tagged", "untagged"):
        shutil.copytree(root / "whole", root / name)
    shutil.rmtree(root / "no_variables" / "variables")
    for name, tags in (("tagged", ["train"]), ("untagged", [])):
        graph = root / name / "saved_model.pb"
        content = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
        content.meta_graphs[0].meta_info_def.tags[:] = tags
        graph.write_bytes(content.SerializeToString())
    converter = tf.lite.TFLiteConverter.from_saved_model(str(root / "whole"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    (root / "quantized.tflite").write_bytes(converter.convert())


def of_signatures_that_do_not_run(root: Path) -> None:
    """SavedModels without a signature, or with one that takes no samples."""
    weights = tf.constant(floats(12, 4))
    x, kind = ([None, 12], tf.float32), tf.float32
    save(root / "scalar", lambda x, by: {"y": x @ weights * by}, x=x, by=([], kind))
    save(root / "one_for_each", lambda x, by: {"y": x @ weights * by}, x=x, by=([None, 1], kind))
    save(root / "any_rank", lambda x: {"y": tf.abs(x)}, x=(None, kind))
    save(root / "no_inputs", lambda: {"y": weights})
    tf.saved_model.save(tf.Module(), str(root / "nothing"))
    module = tf.Module()
    module.serve = tf.function(
        answering(lambda x: x @ weights), input_signature=[tf.TensorSpec(*x)]
    )
    module.weights = weights
    # A single function would be the signature.
    module.double = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec(*x)])
    tf.saved_model.save(module, str(root / "unsigned"))
    loaded = tf.saved_model.load(str(root / "unsigned"))
    tf.saved_model.save(loaded, str(root / "signed"), signatures=loaded.serve)


def of_files(root: Path) -> None:
    """A table that is filled from a file, which is not there, or not the one that it was."""
    file = root / "words.txt"
    file.write_text("".join(f"{word} {number}\n" for number, word in enumerate(WORDS)))
    entries = tf.lookup.TextFileInitializer(str(file), tf.string, 0, tf.int64, 1, delimiter=" ")
    index, rows = tf.lookup.StaticHashTable(entries, 3), tf.constant(floats(32, 4))
    word = ([None], tf.string)
    save(root / "of_file", lambda word: {"y": tf.gather(rows, index.lookup(word))}, word=word)
    for name in ("without_file", "short_file"):
        shutil.copytree(root / "of_file", root / name)
    (root / "without_file" / "assets" / "words.txt").unlink()
    (root / "short_file" / "assets" / "words.txt").write_text("".join(f"{w}\n" for w in WORDS))


def write(root: Path) -> None:
    """Write the models, and samples for them."""
    keras.utils.set_random_seed(4)
    for interpolation in ("bilinear", "nearest"):
        resized(interpolation).save(root / f"{interpolation}.keras")
    volumes(splits=False).save(root / "grouped.keras")
    volumes(splits=True).save(root / "split.keras")
    pooled(slices=False).save(root / "pooled.keras")
    pooled(slices=True).save(root / "slices.keras")
    dense(1.0).save(root / "dense.keras")
    dense(1e16).save(root / "huge.keras")
    for kind in ("float32", "int32"):
        texts(kind).save(root / f"{kind}_ids.keras")
        np.savez(root / f"{kind}_ids.npz", ids=RNG.integers(0, 50, (40, 12)).astype(kind))
    np.savez(root / "input_1.npz", input_1=floats(40, 12))
    np.savez(root / "low.npz", x=-10 - np.abs(floats(40, 12)))
    for by, name in ((1.0, "x"), (1e16, "large")):
        np.savez(root / f"{name}.npz", x=floats(40, 12, by=by))
    for write in (
        of_words,
        of_boxes,
        of_operators,
        of_signatures,
        of_flatbuffers,
        of_layers,
        of_training,
    ):
        write(root)
    of_damage(root)
