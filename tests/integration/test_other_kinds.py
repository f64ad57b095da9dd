"""Files that Keras and TensorFlow really write: what is read of them, and the ways out."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import ROOT

from edgeconv.model.source import inspect_model, load
from edgeconv.tf.keras_files import export
from edgeconv.types.errors import InputRefused

pytestmark = [pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")]
DOCUMENT = ROOT / "docs" / "models.md"


def several_ends(keras: Any) -> Any:
    """Two inputs, a nested model and a shared layer, weights that are not trained."""
    layers = keras.layers
    image, meta = keras.Input((8, 8, 3), name="image"), keras.Input((4,), name="meta")
    inner = keras.Input((16,))
    sub = keras.Model(inner, layers.Dense(5)(inner), name="sub")
    shared = layers.Dense(16)
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(image))
    first = sub(shared(layers.GlobalAveragePooling2D()(x)))
    both = layers.Concatenate()([first, sub(shared(meta))])
    scores = layers.Dense(3, name="scores")(layers.Dropout(0.5, seed=1)(both))
    other = layers.Dense(1, name="other", trainable=False)(first)
    return keras.Model([image, meta], [scores, other])


def in_sequence(keras: Any) -> Any:
    layers = keras.layers
    recurrent = layers.Bidirectional(layers.LSTM(8))
    return keras.Sequential([keras.Input((9, 6), name="steps"), recurrent, layers.Dense(2)])


def from_a_dict(keras: Any) -> Any:
    ends = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b", dtype="int32")}
    return keras.Model(ends, keras.layers.Dense(2)(ends["a"]))


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_keras_file_declares_the_inputs_and_parameters_that_it_has_once_it_is_loaded(
    tmp_path, name, suffix
):
    keras = pytest.importorskip(name)
    for number, build in enumerate((several_ends, in_sequence, from_a_dict)):
        model = build(keras)
        path = tmp_path / f"{number}{suffix}"
        model.save(path)
        told = inspect_model(path)
        assert told.parameters == model.count_params()
        if (name, build) == ("tf_keras", in_sequence):
            continue  # Its loops take long to export.
        export(str(path), "keras" if suffix == ".keras" else "hdf5", str(tmp_path / "exported"))
        signatures = {s.key: s for s in load(tmp_path / "exported").signatures}
        inputs = sorted(told.declared.inputs, key=lambda spec: spec.name)
        assert tuple(inputs) == signatures["serving_default"].inputs
        known = [out.shape[1:] for out in told.declared.outputs if out.rank_known]
        assert set(known) <= {out.shape[1:] for out in signatures["serving_default"].outputs}
        shutil.rmtree(tmp_path / "exported")


@contextlib.contextmanager
def in_directory(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def write_first_tensorflow(directory: Path) -> None:
    """A frozen graph, a checkpoint and a Hub module of one model, as TensorFlow 1 has them."""
    import tensorflow as tf

    old = tf.compat.v1
    with in_directory(directory), old.Session(graph=tf.Graph()) as session:
        given = old.placeholder(tf.float32, [None, 4], "INPUT")
        kernel = old.get_variable("w", [4, 2], use_resource=False)
        answer = tf.identity(tf.matmul(given, kernel), "OUTPUT")
        session.run(old.global_variables_initializer())
        old.train.Saver().save(session, "model.ckpt")
        graph = session.graph.as_graph_def()
        frozen = old.graph_util.convert_variables_to_constants(session, graph, ["OUTPUT"])
        Path("frozen.pb").write_bytes(frozen.SerializeToString())
        ends = old.saved_model.predict_signature_def({"INPUT": given}, {"output": answer})
        module = old.saved_model.Builder("HUB_MODULE")
        module.add_meta_graph_and_variables(session, [], signature_def_map={"default": ends})
        module.save()
        Path("HUB_MODULE/tfhub_module.pb").write_bytes(b"\x08\x03")
        old.saved_model.simple_save(session, "WHOLE", {"x": given}, {"y": answer})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_ways_out_of_tensorflow_1_that_are_documented_lead_out(tmp_path):
    import tensorflow as tf

    write_first_tensorflow(tmp_path)
    what = {
        "frozen.pb": "a TensorFlow graph",
        "model.ckpt.meta": "the graph of a TensorFlow 1 checkpoint",
        "HUB_MODULE": "a TensorFlow 1 Hub module",
    }
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.M)
    answers = []
    for name, kind in what.items():
        with pytest.raises(InputRefused, match=kind):
            load(tmp_path / name)
        (block,) = (block for block in blocks if name in block)
        with in_directory(tmp_path):
            exec(block, {})
            (signature,) = load("SAVED_MODEL").signatures
            served = tf.saved_model.load("SAVED_MODEL").signatures[signature.key]
            (given,) = signature.inputs
            (answer,) = served(**{given.name: tf.ones((1, 4))}).values()
            answers.append(answer.numpy())
            shutil.rmtree("SAVED_MODEL")
    np.testing.assert_allclose(answers[0], answers[1])
    np.testing.assert_allclose(answers[0], answers[2])
