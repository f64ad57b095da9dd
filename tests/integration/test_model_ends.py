"""What a Keras model's inputs and outputs are called, however it was built and saved."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras
from edge_models import Lite, only

from edgeconv import convert
from edgeconv.model import source
from edgeconv.tf import keras_files
from edgeconv.tf.keras_io import arrange_inputs, inputs_of, output_names, served_shape
from edgeconv.types.errors import InputRefused

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy"),
    pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built"),
]

LIBRARIES = pytest.mark.parametrize("of", [keras, tf_keras], ids=["keras", "tf_keras"])
KINDS = {".keras": "keras", ".h5": "hdf5"}


def sequential(of: Any, *layers: Any, shape: tuple[int, ...] = (4,)) -> Any:
    return of.Sequential([of.layers.Input(shape, name="x"), *layers])


def called(of: Any, *layers: Any, shape: tuple[int, ...] = (4,)) -> Any:
    """A Sequential without an Input, whose shape comes from five samples."""
    model = of.Sequential(list(layers))
    model(np.zeros((5, *shape), np.float32))
    return model


def several(of: Any) -> Any:
    """Outputs in a list: two of one layer, one of a name that these would get, a C keyword."""
    layers = of.layers
    x = layers.Input((4,), name="x")
    shared = layers.Dense(3, name="switch")
    named = layers.Dense(2, name="switch_1")
    tower = of.Sequential([layers.Dense(2)], name="tower")
    return of.Model(x, [named(x), shared(x), shared(layers.Dense(4)(x)), tower(x)])


def in_a_dictionary(of: Any) -> Any:
    x = of.layers.Input((4,), name="x")
    first, second = of.layers.Dense(3, name="first"), of.layers.Dense(2, name="second")
    return of.Model(x, {"tool/condition": first(x), "größe": second(x)})


def loaded(model: Any, place: Path, suffix: str = ".keras") -> Any:
    """The model from a file."""
    path = place / f"model{suffix}"
    model.save(path)
    return keras_files.load(str(path), KINDS[suffix])[0]


@LIBRARIES
@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("built", [sequential, called])
def test_a_sequential_has_the_names_of_its_layers_and_an_open_batch(of, suffix, built, tmp_path):
    model = loaded(built(of, of.layers.Dense(3, name="tool_condition")), tmp_path, suffix)
    assert output_names(model) == ("tool_condition",)
    ((name, tensor),) = inputs_of(model).items()
    assert served_shape(model, tensor) == (None, 4)
    rows = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(model(arrange_inputs(model, {name: rows})), model(rows))


@LIBRARIES
@pytest.mark.parametrize("suffix", KINDS)
def test_outputs_in_a_list_have_unique_names_in_their_order(of, suffix, tmp_path):
    names = ("switch_1", "switch", "switch_2", "tower")
    assert output_names(loaded(several(of), tmp_path, suffix)) == names


@LIBRARIES
@pytest.mark.parametrize("suffix", KINDS)
def test_outputs_in_a_dictionary_have_its_keys(of, suffix, tmp_path):
    model = loaded(in_a_dictionary(of), tmp_path, suffix)
    by_name = dict(zip(output_names(model), (one.shape[1] for one in model.outputs), strict=True))
    assert by_name == {"tool/condition": 3, "größe": 2}


@LIBRARIES
def test_one_tensor_twice_has_two_names(of):
    x = of.layers.Input((4,), name="x")
    out = of.layers.Dense(2, name="out")(x)
    assert output_names(of.Model(x, [out, out, x])) == ("out", "out_1", "x")
    assert set(output_names(of.Model(x, {"a": out, "b": out}))) == {"a", "b"}
    nested = output_names(of.Model(x, {"a": [out, x]}))
    assert nested == ("out", "x")


def test_a_call_of_the_users_own_is_not_named_by_the_graph():
    class Own(keras.Model):
        def call(self, inputs: Any) -> Any:
            return [inputs, inputs]

    x = keras.Input((4,), name="x")
    assert output_names(Own(x, keras.layers.Dense(2)(x))) == ()


@LIBRARIES
def test_a_layer_that_keeps_its_state_keeps_its_batch(of):
    start = of.layers.Input(batch_shape=(2, 5, 4), name="x")
    model = of.Sequential([start, of.Sequential([of.layers.LSTM(3, stateful=True)])])
    assert served_shape(model, model.inputs[0]) == (2, 5, 4)


@LIBRARIES
@pytest.mark.parametrize("suffix", KINDS)
def test_the_signature_of_an_export_has_the_names(of, suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    several(of).save(path)
    keras_files.export(str(path), KINDS[suffix], str(tmp_path / "exported"))
    signatures = source.load(tmp_path / "exported").signatures
    (signature,) = (one for one in signatures if one.key == "serving_default")
    assert [one.name for one in signature.inputs] == ["x"]
    assert sorted(one.name for one in signature.outputs) == [
        "switch",
        "switch_1",
        "switch_2",
        "tower",
    ]


def refused(path: Path) -> InputRefused:
    with pytest.raises(InputRefused) as error:
        keras_files.export(str(path), "keras", str(path.with_suffix("")))
    return error.value


def test_names_that_a_graph_cannot_have_are_refused_by_name(tmp_path):
    for name in ("die Größe", "a:0", "_hidden"):
        sequential(keras, keras.layers.Dense(2, name=name)).save(tmp_path / "m.keras")
        error = refused(tmp_path / "m.keras")
        assert f"m.keras: TensorFlow does not accept these names of layers: {name!r}" in str(error)
        assert "next: give each a name of ASCII letters" in str(error)


def test_a_sequential_that_was_never_called_is_refused_by_its_reason(tmp_path):
    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "m.keras")
    assert "Keras does not know the shape of its inputs" in str(refused(tmp_path / "m.keras"))


# The whole way


@pytest.fixture(scope="module")
def lstm(tmp_path_factory) -> tuple[Path, Any]:
    """A directory with what became of a recurrent Sequential of Keras 3, and its model."""
    place = tmp_path_factory.mktemp("lstm")
    layers = keras.layers
    head = layers.Dense(3, name="tool_condition")
    model = called(keras, layers.LSTM(4, name="lstm"), head, shape=(5, 4))
    model.save(place / "lstm.keras")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
        convert(place / "lstm.keras", out=place / "out", to=["float32", "dynamic"])
    return place / "out", model


def test_a_recurrent_sequential_converts_and_answers_as_the_model(lstm):
    out, model = lstm
    steps = np.random.default_rng(0).normal(size=(6, 5, 4)).astype(np.float32)
    (name,) = inputs_of(model)
    made = Lite(out / "lstm.float32.tflite")
    assert made.inputs[name]["shape"].tolist() == [1, 5, 4]
    answers = made.run(**{name: steps})
    assert list(answers) == ["tool_condition"]
    np.testing.assert_allclose(only(answers), model(steps), atol=1e-5)


def test_a_batch_of_the_users_is_given_to_a_sequential(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    image = keras.layers.Input((8, 8, 1), name="image")
    layers = [keras.layers.Conv2D(2, 3), keras.layers.Flatten(), keras.layers.Dense(2, name="out")]
    keras.Sequential([image, *layers]).save(tmp_path / "cnn.keras")
    made = convert(tmp_path / "cnn.keras", out=tmp_path / "out", to=["float32"], batch=1)
    (artifact,) = made.artifacts
    assert artifact.signature.inputs[0].shape == (1, 8, 8, 1)
    assert [spec.name for spec in artifact.signature.outputs] == ["out"]
