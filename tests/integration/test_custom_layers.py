"""Models with layers of the user's own, from the file to what is published and measured."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import captured
from forking import edgeconv_command

from edgeconv import bench, convert, train
from edgeconv.requests.recipes import make_recipes
from edgeconv.tf import keras_files
from edgeconv.tf.lazy import tf
from edgeconv.types import Artifact, Conversion, Execution, Opening, Qat, Training
from edgeconv.types.errors import InputRefused, UsageError

ZOO = "custom_zoo:write"

TRUSTED = Execution(allow_code=True)


@pytest.fixture(autouse=True)
def _here(models, monkeypatch):
    monkeypatch.chdir(models)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(models / "cache"))


@pytest.fixture(scope="module")
def converted(models) -> Conversion:
    before = Path.cwd()
    os.chdir(models)
    try:
        opening = Opening(custom_objects=("my_layers",))
        return convert(
            "three.keras", out="three", to=["float32"], opening=opening, execution=TRUSTED
        )
    finally:
        os.chdir(before)


def loaded(file: str, *custom: str) -> list[str]:
    """The Keras that loads a file, as the child does it."""
    kind = "keras" if file.endswith(".keras") else "hdf5"
    opening = Opening(custom_objects=custom, directory=str(Path.cwd()))
    return [step.attempt for step in keras_files.load(file, kind, opening)[1]]


def test_a_model_with_layers_of_the_user_s_own_converts_and_says_with_what(converted, models):
    (artifact,) = converted.artifacts
    assert artifact.verification.outputs[0].snr_db > 100
    assert artifact.opening.custom_objects == ("my_layers",)
    assert artifact.opening.directory == ""
    manifest = (models / "three" / "three.float32.json").read_bytes()
    assert msgspec.json.decode(manifest, type=Artifact).opening == artifact.opening


@pytest.mark.parametrize("module", ["my_layers", "./my_layers.py"])
@pytest.mark.parametrize("file", ["three.keras", "three.h5"])
def test_layers_of_keras_3_load_by_name_and_by_path(file, module):
    assert loaded(file, module) == ["keras"]


@pytest.mark.parametrize("file", ["two.keras", "two.h5"])
def test_layers_of_tf_keras_load_in_tf_keras(file):
    assert loaded(file, "my_tf_layers") == ["tf_keras"]


def test_one_class_of_a_module_is_enough_where_the_model_has_one():
    assert loaded("one.keras", "my_layers:Scale") == ["keras"]
    with pytest.raises(InputRefused, match=r"'AttentionPool'|'my_swish'"):
        loaded("three.keras", "my_layers:Scale")


@pytest.mark.parametrize(
    ("file", "module", "said"),
    [
        ("three.keras", "my_tf_layers", "is of Keras 3, and .* derives from a class of tf_keras"),
        ("two.keras", "my_layers", "is of tf_keras, and .* derives from a class of Keras 3"),
    ],
)
def test_a_class_that_derives_from_the_other_keras_is_said(file, module, said):
    with pytest.raises(InputRefused, match=said):
        loaded(file, module)


@pytest.mark.parametrize(
    ("custom", "kind", "said"),
    [
        ("my_layers:Pool", UsageError, "unknown class in my_layers 'Pool'"),
        ("my_layers:NUMBER", UsageError, "is a int, not a class or a function"),
        ("empty", UsageError, "defines no class and no function"),
        ("broken", InputRefused, r"division by zero .*broken\.py:2\)"),
        ("wrong_syntax", InputRefused, r"SyntaxError.*wrong_syntax\.py:1\)"),
        ("leaves", InputRefused, r"called exit\(3\)"),
        ("./types.py", InputRefused, "is the name of another module"),
    ],
)
def test_what_is_wrong_with_a_module_is_said_with_its_own_line(custom, kind, said):
    with pytest.raises(kind, match=said):
        loaded("three.keras", custom)


SUBCLASSED = """\
import keras

class Own(keras.Model):
    def __init__(self, **rest):
        super().__init__(**rest)
        self.head = keras.layers.Dense(2)

    def call(self, given):
        return self.head(sum(keras.tree.flatten(given)))
"""
ONES = np.ones((3, 4), np.float32)


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("own") / "own_model.py"
    file.write_text(SUBCLASSED)
    return file


@pytest.mark.parametrize(
    ("given", "names"),
    [(ONES, 1), ({"a": ONES, "b": -2 * ONES}, ["a", "b"]), ((ONES, 3 * ONES), 2)],
)
def test_a_subclassed_model_has_the_inputs_that_it_was_built_for(given, names, own, tmp_path):
    defined: dict[str, type] = {}
    exec(SUBCLASSED, defined)
    model, file = defined["Own"](), str(tmp_path / "own.keras")
    expected = model.predict(given, verbose=0)
    model.save(file)
    opening = Opening(custom_objects=(f"./{own.name}",), directory=str(own.parent))
    keras_files.export(file, "keras", str(tmp_path / "exported"), opening=opening)
    served = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    inputs = sorted(served.structured_input_signature[1])
    assert names in (inputs, len(inputs))
    values = map(tf.constant, tf.nest.flatten(given))
    (output,) = served(**dict(zip(inputs, values, strict=True))).values()
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("file", ["code.keras", "code.h5"])
def test_a_lambda_layer_stays_refused_and_nothing_is_imported(file):
    with pytest.raises(InputRefused, match="has a Lambda layer"):
        loaded(file, "leaves")


def test_bench_needs_the_option_again_and_runs_no_code_that_a_manifest_names(converted, models):
    with pytest.raises(UsageError, match="needs the user's own code to load") as caught:
        bench([models / "three"], execution=TRUSTED)
    assert "`custom_objects` my_layers" in caught.value.hint
    opening = Opening(custom_objects=("my_layers",))
    report = bench([models / "three"], opening=opening, execution=TRUSTED)
    assert report.baseline is not None
    with pytest.raises(UsageError, match="was not given on the command line"):
        bench([models / "three"], opening=opening)


def test_a_configuration_may_name_the_module_only_with_allow_code(converted, models):
    config = models / "edgeconv.toml"
    config.write_text('[convert]\ncustom-objects = ["./my_layers.py"]\n', encoding="utf-8")
    words = ["convert", "three.keras", "--to", "float32", "-o", "configured", "-q"]
    command = [*edgeconv_command(), *words]
    try:
        refused = captured(command)
        allowed = captured([*command, "--allow-code"])
    finally:
        config.unlink()
    assert refused.returncode == 2
    assert "names code" in refused.stderr
    assert "--allow-code" in refused.stderr
    assert allowed.returncode == 0, allowed.stderr
    assert (models / "configured" / "three.float32.tflite").is_file()


@pytest.mark.slow
def test_a_training_that_begins_with_a_keras_file_knows_its_layers(models):
    with pytest.raises(InputRefused, match=r"build\(\) of fine_tune failed"):
        train(training=Training(module="fine_tune.py"), out="trained")
    with pytest.raises(InputRefused, match="there is no module 'my_layer'"):
        train(training=Training(module="fine_tune.py", custom_objects=("my_layer",)), out="trained")
    asked = Training(module="fine_tune.py", custom_objects=("my_tf_layers:Scale",))
    record = train(training=asked, out="trained")
    assert loaded(record.keras_file, "my_tf_layers") == ["tf_keras"]


@pytest.mark.slow
def test_a_layer_of_the_user_s_own_stays_float_in_a_training_with_quantization(models):
    steps = np.random.default_rng(4).standard_normal((64, 6, 4)).astype(np.float32)
    np.savez("steps.npz", steps=steps)
    settings = Qat(epochs=1, target="model", validation_fraction=0.0)
    made = convert(
        "two.h5",
        out="trained-on",
        to=make_recipes(["qat"], qat=settings),
        training="steps.npz",
        opening=Opening(custom_objects=("my_tf_layers",)),
        execution=TRUSTED,
    )
    assert made.failures == ()
    record = made.artifacts[0].qat
    left = {layer.kind: layer.reason for layer in record.layers if layer.treatment == "float"}
    assert left["AttentionPool"] == left["Scale"] == "its class is not one of Keras's own"
