"""Models that convert by the other Keras, with shapes fixed, or from a graph of another tag."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from edgeconv import bench, convert
from edgeconv.tf import keras_files
from edgeconv.tf.keras_files import refuse_another_function
from edgeconv.tf.lean import has_builtin, refusal
from edgeconv.types import Opening
from edgeconv.types.errors import ConversionRefused, InputRefused, UnsupportedOperators

pytestmark = [pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")]
OTHER = "loaded with tf_keras"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "ways-cache"))


def generator(keras, path: Path) -> Path:
    """Image to image of any size, with a transposed convolution."""
    layers = keras.layers
    image = layers.Input((None, None, 3), name="image")
    x = layers.Conv2D(4, 3, strides=2, padding="same")(image)
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    keras.Model(image, layers.Conv2D(3, 3, padding="same")(layers.UpSampling2D()(x))).save(path)
    return path


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    """One as Keras 2.3 wrote it, without what later versions say of a transposed convolution."""
    import tf_keras

    path = generator(tf_keras, tmp_path_factory.mktemp("old") / "generator.h5")
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            if layer["class_name"] == "Conv2DTranspose":
                del layer["config"]["groups"]
        file.attrs["model_config"] = json.dumps(config).encode()
        file.attrs["keras_version"] = b"2.3.0-tf"
    return path


def test_an_old_generator_converts_by_tf_keras_where_keras_3_gives_no_tflite(old, tmp_path):
    said: list[str] = []
    made = convert(old, out=tmp_path / "out", to=["float32"], on_progress=said.append)
    (artifact,) = made.artifacts
    assert f"trying again: {OTHER}" in said
    failed, good = artifact.ladder
    assert "Conv2D" in failed.failed
    assert (good.attempt, good.failed) == (OTHER, "")
    assert artifact.verification.outputs[0].snr_db > 100


@pytest.mark.slow
def test_the_same_of_keras_3_converts_with_the_shapes_of_the_samples_or_says_what_to_do(tmp_path):
    import keras

    model = generator(keras, tmp_path / "generator.keras")
    with pytest.raises(UnsupportedOperators, match="in a form that TFLite does not") as caught:
        convert(model, out=tmp_path / "none", to=["float32"])
    # No Flex advice for what TFLite has, and each attempt by its name.
    assert "Flex" not in str(caught.value)
    assert "shape" in caught.value.hint
    assert "tried as it is, and batch fixed to 1: the same" in caught.value.message
    samples = np.random.default_rng(3).random((12, 16, 24, 3), np.float32)
    np.savez(tmp_path / "image.npz", image=samples)
    made = convert(
        model, out=tmp_path / "out", to=["float32"], calibration=str(tmp_path / "image.npz")
    )
    assert made.artifacts[0].signature.inputs[0].shape == (1, 16, 24, 3)


def test_a_model_that_means_something_else_in_the_other_keras_is_not_taken_from_there():
    import keras
    import tf_keras

    def dense(library, activation: str):
        inputs = library.layers.Input((4,))
        model = library.Model(inputs, library.layers.Dense(3, activation=activation)(inputs))
        model.set_weights([np.linspace(-2, 2, 12).reshape(4, 3), np.zeros(3)])
        return model

    refuse_another_function("m.h5", dense(keras, "tanh"), dense(tf_keras, "tanh"))
    with pytest.raises(ConversionRefused, match="the outputs differ"):
        refuse_another_function(
            "m.h5", dense(keras, "hard_sigmoid"), dense(tf_keras, "hard_sigmoid")
        )


def test_a_keras_file_of_keras_2_that_both_read_is_exported_by_keras_3_when_asked(tmp_path):
    from tf_keras import Sequential, layers

    model = Sequential([layers.Input((4,)), layers.Dense(3)])
    model.save(tmp_path / "model.keras")
    steps = keras_files.export(
        str(tmp_path / "model.keras"), "keras", str(tmp_path / "to"), other=True
    )
    assert [step.attempt for step in steps] == ["keras"]


# What the converter says


def test_operators_that_tflite_has_are_told_from_those_that_only_tensorflow_has():
    for name in ("Conv2D", "MatMul", "FusedBatchNormV3", "Conv2DBackpropInput", "MaxPool", "Mean"):
        assert has_builtin(name), name
    for name in ("TensorListReserve", "BatchMatMulV2", "DepthwiseConv2dNative", "StridedSlice"):
        assert has_builtin(name), name
    for name in ("MatrixInverse", "AsString", "StringJoin", "LinSpace", "Betainc", "Qr"):
        assert not has_builtin(name), name


@pytest.mark.parametrize(
    ("names", "flex", "kept"),
    [
        ("Conv2D", False, "Conv2D"),
        ("MatrixInverse", True, "MatrixInverse"),
        ("Conv2D, MatrixInverse", True, "MatrixInverse"),
    ],
)
def test_flex_is_advised_only_for_what_only_tensorflow_has(names, flex, kept):
    error = refusal(f"error: failed\nTF Select ops: {names}\nDetails:")
    assert ("Flex" in error.hint) is flex
    assert error.message.endswith(f": {kept}")
    assert error.cause.operators == tuple(names.split(", "))


# Tags


@pytest.fixture(scope="module")
def tagged(tmp_path_factory) -> Path:
    """A model of TensorFlow 1 with a graph for training and one for inference, twice it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    place = tmp_path_factory.mktemp("tagged") / "model"
    builder = v1.saved_model.Builder(str(place))
    predict = v1.saved_model.predict_signature_def
    for tags, scale in ((["train"], 1.0), (["infer", "gpu"], 2.0)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 2], name="x")
            weight = v1.get_variable("weight", initializer=[[1.0], [2.0]])
            ends = {"serving_default": predict({"x": x}, {"y": scale * (x @ weight)})}
            if scale == 1.0:
                session.run(v1.global_variables_initializer())
                builder.add_meta_graph_and_variables(session, tags, signature_def_map=ends)
            else:
                builder.add_meta_graph(tags, signature_def_map=ends)
    builder.save()
    return place


def test_the_graph_of_another_tag_converts_and_its_baseline_is_measured(tagged, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    with pytest.raises(InputRefused, match="no graph tagged 'serve', only: train; infer,gpu"):
        convert(tagged, out=tmp_path / "none", to=["float32"])
    answers = {}
    for tags in (("train",), ("gpu", "infer")):
        out = tmp_path / tags[0]
        made = convert(tagged, out=out, to=["float32"], opening=Opening(tags=tags))
        (artifact,) = made.artifacts
        assert artifact.opening.tags == tags
        run = Interpreter(str(out / artifact.file)).get_signature_runner()
        answers[tags[0]] = float(run(x=np.float32([[1, 1]]))["y"][0, 0])
    assert answers == {"train": 3.0, "gpu": 6.0}
    # The manifest says which graph it was.
    report = bench([tmp_path / "gpu"])
    assert report.baseline is not None
    assert report.measurements[0].agreement is None or report.measurements[0].error == ""


def test_fixed_shapes_and_unchanged_variables_work_from_another_tag_too(tagged, tmp_path):
    made = convert(
        tagged, out=tmp_path / "out", to=["float32"], batch=2, opening=Opening(tags=("train",))
    )
    assert made.artifacts[0].signature.inputs[0].shape == (2, 2)
