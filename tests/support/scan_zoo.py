"""Models of every kind that TensorFlow and both Keras save, none of which reaches outside.

The names of all operators that TensorFlow registers are in operators.json.
"""

import json
from pathlib import Path
from typing import Any


def write(root: Path) -> None:
    import keras
    import tensorflow as tf
    import tf_keras
    from tensorflow.core.framework.op_def_pb2 import OpList
    from tensorflow.python.client import pywrap_tf_session

    (root / "words.txt").write_text("a\nb\nc\n")
    listed = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    registered = [operator.name for operator in OpList.FromString(listed).op]
    (root / "operators.json").write_text(json.dumps(registered))
    tables(root, tf)
    for name, extra in (("session", False), ("savers", True)):
        session(root, tf.compat.v1, name, extra=extra)
    keras_files(root, "keras", keras, lambda x: keras.ops.reshape(keras.ops.sin(x) * 2, (-1, 2, 2)))
    keras_files(root, "tf_keras", tf_keras, lambda x: tf.reshape(tf.math.sin(x) * 2, (-1, 2, 2)))
    # With layers that are not among Keras's.
    applications = keras.applications
    applications.ConvNeXtTiny(weights=None, input_shape=(32, 32, 3)).save(root / "convnext.keras")


def tables(root: Path, tf: Any) -> None:
    whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER

    def words() -> Any:
        return tf.lookup.TextFileInitializer(
            str(root / "words.txt"), tf.string, whole, tf.int64, number
        )

    class Module(tf.Module):
        def __init__(self) -> None:
            self.weights = tf.Variable(tf.ones((4, 3)))
            self.table = tf.lookup.StaticHashTable(words(), -1)
            self.vocabulary = tf.lookup.StaticVocabularyTable(words(), 2)

        @tf.function(input_signature=[tf.TensorSpec((None, 4)), tf.TensorSpec((None,), tf.string)])
        def answer(self, x: Any, w: Any) -> dict[str, Any]:
            tf.print("looked up", w)
            kept = tf.map_fn(lambda row: tf.cond(row[0] > 0, lambda: row, lambda: -row), x)
            return {
                "y": kept @ self.weights,
                "known": self.table.lookup(w),
                "all": self.vocabulary.lookup(w),
            }

    module = Module()
    tf.saved_model.save(module, str(root / "tables"), signatures=module.answer)


def session(root: Path, v1: Any, name: str, *, extra: bool) -> None:
    with v1.Graph().as_default(), v1.Session() as running:
        x = v1.placeholder(v1.float32, (None, 4), "x")
        words = v1.placeholder(v1.string, (None,), "words")
        y = v1.matmul(x, v1.get_variable("w", (4, 3)), name="y")
        whole, number = v1.lookup.TextFileIndex.WHOLE_LINE, v1.lookup.TextFileIndex.LINE_NUMBER
        read = v1.lookup.TextFileInitializer(
            str(root / "words.txt"), v1.string, whole, v1.int64, number
        )
        found = v1.lookup.StaticHashTable(read, -1).lookup(words)
        if extra:
            v1.train.Saver()
            v1.train.Saver(sharded=True)
        running.run([v1.global_variables_initializer(), v1.tables_initializer()])
        predict = v1.saved_model.predict_signature_def({"x": x, "w": words}, {"y": y, "i": found})
        builder = v1.saved_model.Builder(str(root / name))
        builder.add_meta_graph_and_variables(
            running,
            ["serve"],
            {"serving_default": predict},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
        )
        builder.save()


def keras_files(root: Path, name: str, library: Any, operations: Any) -> None:
    layers = library.layers
    text = library.Input((1,), dtype="string")
    looked_up = layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)(text)
    reader = library.Model(text, layers.Embedding(10, 4)(looked_up))
    steps = library.Input((8, 4))
    recurrent = library.Model(steps, layers.Bidirectional(layers.LSTM(5))(steps))
    recurrent.compile("adam", "mse")
    x = library.Input((4,))
    arithmetic = library.Model(x, operations(x))
    for stem, model in (("text", reader), ("lstm", recurrent), ("operations", arithmetic)):
        model.save(root / f"{stem}.{name}.keras")
        if name == "keras":
            model.export(root / f"{stem}.{name}.saved", verbose=False)
        else:
            model.save(root / f"{stem}.{name}.saved", save_format="tf")
    recurrent.save(root / f"lstm.{name}.h5")
