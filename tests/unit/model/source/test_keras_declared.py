"""What a Keras file says of its inputs, outputs and parameters, before anything loads it."""

import zipfile

import msgspec
import pytest
from click.testing import CliRunner
from keras_files import (
    IMAGE_AND_META,
    called,
    functional,
    given,
    layer,
    sequential,
    write_hdf5,
    write_keras,
)
from wording import fails

from edgeconv.cli import cli
from edgeconv.conversion.plan import make_plan, resolve
from edgeconv.model.source import inspect_model, keras_file_signature, load
from edgeconv.model.source.keras_signature import declared_signature
from edgeconv.requests.convert import ConvertRequest
from edgeconv.types import Inspection, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError


def test_a_functional_model_declares_names_shapes_and_dtypes():
    signature = declared_signature(IMAGE_AND_META)
    assert signature.inputs == (
        TensorSpec(name="image", shape=(-1, 8, 8, 3), dtype="float32"),
        TensorSpec(name="meta", shape=(-1, 4), dtype="int32"),
    )
    assert [(t.name, t.shape) for t in signature.outputs] == [("s", (-1, 3)), ("b", (-1, 4))]


def test_inputs_in_a_dict_and_one_output_without_a_list_are_found():
    layers = [given("a", (None, 3)), called(layer("Dense", "d", units=2), "a", (None, 3))]
    signature = declared_signature(functional(layers, {"a": ["a", 0, 0]}, ["d", 0, 0]))
    assert [t.name for t in signature.inputs] == ["a"]
    assert [(t.name, t.shape) for t in signature.outputs] == [("d", (-1, 2))]


def test_a_nested_model_gives_its_own_outputs():
    inner = functional(
        [given("i", (None, 16)), called(layer("Dense", "d", units=5), "i", (None, 16))],
        [["i", 0, 0]],
        [["d", 0, 0]],
    )
    sub = {**called({**inner, "name": "sub"}, "x", (None, 16))}
    signature = declared_signature(
        functional([given("x", (None, 16)), sub], [["x", 0, 0]], [["sub", 0, 0]])
    )
    assert [(t.name, t.shape) for t in signature.outputs] == [("sub", (-1, 5))]


@pytest.mark.parametrize(
    ("last", "built", "shape"),
    [
        (layer("Dense", "d", units=10), [None, 7, 16], (-1, 7, 10)),
        (layer("Softmax", "d"), [None, 10], (-1, 10)),
        (layer("Flatten", "d"), [None, 4, 5], (-1, 20)),
        (layer("Reshape", "d", target_shape=[2, 3]), [None, 6], (-1, 2, 3)),
        (layer("GlobalMaxPooling2D", "d"), [None, 4, 5, 6], (-1, 6)),
        (layer("GlobalMaxPooling2D", "d", data_format="channels_first"), [None, 4, 5, 6], None),
        (layer("Reshape", "d", target_shape=[2, -1]), [None, 6], None),
        (layer("Flatten", "d"), [None, None, 5], None),
        (layer("Conv2D", "d", filters=3), [None, 8, 8, 3], None),
        (layer("Mine", "d"), [None, 8], None),
        (layer("Dense", "d", units=10), None, None),
    ],
)
def test_an_output_has_the_shape_that_is_certain_and_no_other(last, built, shape):
    last = {**last, "build_config": {"input_shape": built}}
    signature = declared_signature(sequential(given("x", (None, 4)), last))
    assert signature.outputs[0].rank_known == (shape is not None)
    assert signature.outputs[0].shape == (shape or ())


def test_an_older_sequential_model_has_its_shape_in_its_first_layer():
    first = layer("Dense", "dense_1", units=2, batch_input_shape=[None, 4])
    bare = {"class_name": "Sequential", "config": [first]}
    signature = declared_signature(bare)
    assert signature.inputs == (TensorSpec(name="dense_1_input", shape=(-1, 4), dtype="float32"),)


def test_mixed_precision_computes_in_the_lower_one():
    policy = {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}
    signature = declared_signature(
        sequential(given("x", (None, 4)), layer("Dense", "d", units=2, dtype=policy))
    )
    assert signature.outputs[0].dtype == "float16"


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (sequential(layer("Dense", "d", units=2)), "it was never called, so it has no input"),
        (
            {"class_name": "Mine", "config": {}, "build_config": {"input_shape": [1, 5]}},
            "a subclassed model: its inputs and outputs are known once it is loaded; it was "
            "called with shape [1,5]",
        ),
        (sequential(given("x", (None, 4), sparse=True)), "its config does not have the shapes"),
    ],
)
def test_what_cannot_be_known_is_said(tmp_path, config, note):
    inspection = inspect_model(write_keras(tmp_path / "a.keras", config))
    assert inspection.declared is None
    assert any(note in each for each in inspection.model.notes)


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [("schicht_ä", True), ("a:0", True), ("dense_1", False), ("a/b.c", False)],
)
def test_names_that_a_graph_cannot_have_are_refused_without_tensorflow(tmp_path, name, is_refused):
    config = sequential(given("x", (None, 4)), layer("Dense", name, units=2))
    path = write_keras(tmp_path / "a.keras", config)
    assert inspect_model(path).unusable_names == ((name,) if is_refused else ())
    if is_refused:
        with fails(InputRefused):
            keras_file_signature(path)
    else:
        assert keras_file_signature(path) is not None


FROZEN_DENSE = layer("Dense", "frozen", units=2, trainable=False)
COUNTED = sequential(
    given("x", (None, 4)),
    layer("Dense", "d", units=3),
    layer("BatchNormalization", "n", center=False),
    layer("Bidirectional", "b", layer=layer("LSTM", "l", units=1)),
    FROZEN_DENSE,
    sequential(layer("Dense", "inner", units=5)),
)
PLACES = {
    "layers/dense/vars/0": (4, 3),
    "layers/dense/vars/1": (3,),
    "layers/batch_normalization/vars/0": (3,),
    "layers/batch_normalization/vars/1": (3,),
    "layers/batch_normalization/vars/2": (3,),
    "layers/bidirectional/forward_layer/cell/vars/0": (3, 4),
    "layers/dense_1/vars/0": (3, 2),
    "layers/sequential/layers/dense/vars/0": (2, 5),
    "layers/dropout/seed_generator/vars/0": (2,),
    "optimizer/vars/1": (4, 3),
}
NAMES = {
    "model_weights/d/d/kernel:0": (4, 3),
    "model_weights/d/d/bias:0": (3,),
    "model_weights/n/n/gamma:0": (3,),
    "model_weights/n/n/moving_mean:0": (3,),
    "model_weights/n/n/moving_variance:0": (3,),
    "model_weights/b/b/forward_l/kernel:0": (3, 4),
    "model_weights/frozen/frozen/kernel:0": (3, 2),
    "model_weights/s/inner/kernel:0": (2, 5),
    "optimizer_weights/Adam/d/kernel/m:0": (4, 3),
}


def test_parameters_are_counted_by_the_shapes_of_the_weights(tmp_path):
    total = 12 + 3 + 9 + 12 + 6 + 10
    assert inspect_model(write_keras(tmp_path / "a.keras", COUNTED, PLACES)).parameters == total
    assert inspect_model(write_hdf5(tmp_path / "b.h5", COUNTED, NAMES)).parameters == total


def test_a_file_without_weights_has_no_number_of_parameters(tmp_path):
    assert inspect_model(write_keras(tmp_path / "a.keras", COUNTED)).parameters is None
    assert inspect_model(write_keras(tmp_path / "a.keras", COUNTED, {})).parameters is None


def test_damaged_weights_are_refused_where_they_are_counted_alone(tmp_path):
    path = write_keras(tmp_path / "a.keras", COUNTED, PLACES)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["model.weights.h5"] = members["model.weights.h5"][:100]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with fails(InputRefused):
        inspect_model(path)
    assert load(path).kind == "keras"


def test_inspect_shows_the_declared_signature_and_the_parameters(tmp_path):
    path = write_keras(tmp_path / "net.keras", IMAGE_AND_META, {"layers/dense/vars/0": (192, 3)})
    shown = CliRunner().invoke(cli, ["inspect", str(path)], catch_exceptions=False).output
    words = [line.split() for line in shown.splitlines()]
    assert ["parameters", "576"] in words
    assert ["input", "image", "[?,", "8,", "8,", "3]", "float32"] in words
    assert ["output", "b", "[?,", "4]", "float32"] in words
    document = CliRunner().invoke(cli, ["inspect", "--json", str(path)]).output
    assert msgspec.json.decode(document, type=Inspection) == inspect_model(path)


def test_a_shape_for_an_input_that_a_keras_file_has_not_is_refused_with_a_suggestion(tmp_path):
    path = write_keras(tmp_path / "net.keras", IMAGE_AND_META)
    plan = make_plan(
        ConvertRequest(
            model=str(path),
            directory=str(tmp_path / "out"),
            to=("float32",),
            shapes={"imge": (1, 8, 8, 3)},
        )
    )
    with fails(UsageError):
        resolve(plan)


@pytest.mark.parametrize(
    "config",
    [
        {"class_name": "Functional", "config": {"input_layers": [], "layers": []}},
        {"class_name": "Functional", "config": {"input_layers": "x", "layers": "y"}},
        functional([given("x", (None, 4))], [["y", 0, 0]], [["z", 9, 9]]),
        functional([given("x", (None, 4)), layer("A", "z")], [["x", 0, 0]], [["z", 9, 9]]),
        sequential({"class_name": 3, "config": []}),
        sequential(given("x", ("a",))),
        {"config": [[1], {"config": {"batch_shape": 1}}]},
    ],
)
def test_a_config_that_makes_no_sense_declares_nothing_or_little(tmp_path, config):
    inspection = inspect_model(write_keras(tmp_path / "a.keras", config, {"layers/x/0": (2,)}))
    assert inspection.declared is None or inspection.declared.inputs
