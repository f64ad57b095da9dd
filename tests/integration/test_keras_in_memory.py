"""Keras models and tf.data sets in memory, given to verbs as a notebook does."""

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgeconv
from edgeconv.types import Conversion
from edgeconv.types.errors import InputRefused, UsageError

RNG = np.random.default_rng(2)
X = RNG.normal(size=(80, 6)).astype(np.float32)
QUICK: dict[str, Any] = {"rounds": 1, "repeats": 2, "seconds": 0.01, "warmup_seconds": 0.01}
PLAIN = {"methods": "none", "no_cache": True}


@pytest.fixture(scope="module")
def tf():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow
    return tensorflow


@pytest.fixture(scope="module")
def keras(tf):
    import keras

    return keras


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def distance(conversion: Conversion, recipe: str, model: Any, x: Any = X) -> float:
    """How far a file is from the model in memory, at most."""
    interpreter = conversion[recipe].interpreter()
    (given,), (answer,) = interpreter.get_input_details(), interpreter.get_output_details()
    rows = []
    for row in x[:20]:
        interpreter.set_tensor(given["index"], row[None])
        interpreter.invoke()
        rows.append(interpreter.get_tensor(answer["index"])[0])
    return float(np.abs(np.array(rows) - np.asarray(model(x[:20]))).max())


def test_a_keras_3_model_goes_all_the_way_and_is_its_own_baseline(keras, tf, place):
    """With a loss of the user's, which no file may name."""
    images = RNG.uniform(size=(90, 8, 8, 1))
    labels = RNG.integers(0, 4, 90)
    layers = [keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3, activation="relu")]
    layers += [keras.layers.Flatten(), keras.layers.Dense(4, activation="softmax")]
    model = keras.Sequential(layers, name="small_cnn")

    def own_loss(_: Any, answers: Any) -> Any:
        return answers

    model.compile("adam", own_loss)
    made = edgeconv.convert(model, to=["int8"], calibration=images[:60], **PLAIN)
    assert Path(made.directory) == place / "small_cnn.tflites"
    assert distance(made, "int8", model, images.astype(np.float32)) < 0.05
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    report = edgeconv.bench(made, data=batches, **QUICK)
    assert (report.data.source, report.data.samples) == ("data (Dataset)", 90)
    assert report.baseline.accuracy is not None
    # The file has no times in it: it is the same again.
    again = edgeconv.convert(model, to=["int8"], calibration=images[:60], **PLAIN)
    assert again.reused == ("int8",)
    kernel = model.layers[0].kernel
    kernel.assign(kernel * 2)
    assert edgeconv.convert(model, to=["int8"], calibration=images[:60], **PLAIN).reused == ()


def test_a_tf_keras_model_takes_a_dictionary_of_its_inputs(tf, place):
    import tf_keras

    left, right = tf_keras.Input((6,), name="left"), tf_keras.Input((3,), name="right")
    both = tf_keras.layers.Concatenate()([left, right])
    model = tf_keras.Model([left, right], tf_keras.layers.Dense(2, name="y")(both), name="two")
    arrays = {"left": X, "right": X[:, :3].astype(np.float64)}
    made = edgeconv.convert(model, "int8", calibration=arrays, **PLAIN)
    assert [spec.name for spec in made["int8"].signature.inputs] == ["left", "right"]
    assert made["int8"].calibration[0].samples == 69
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(16)
    debugged = edgeconv.debug(model, batches, methods="none", no_cache=True)
    assert debugged.layers
    assert debugged.model == "model 'two' (in memory)"
    assert repr(debugged).startswith("model 'two' (in memory) to int8: ")
    assert edgeconv.inspect(model).model.path == "model 'two' (in memory)"
    with pytest.raises(InputRefused, match="'right' has no array") as error:
        edgeconv.convert(model, "int8", out="no", calibration={"left": X}, **PLAIN)
    assert error.value.hint == "give a dictionary with the keys 'left', 'right'"
    # What was put there for a run that failed is gone.
    assert not [path for path in (place / "no").iterdir() if path.suffix == ".keras"]


def test_a_model_with_code_of_its_own_is_exported(keras, place):
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="own")
            self.dense = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x) ** 2

    model = Own()
    with pytest.raises(InputRefused, match=r"model: 'own' can neither be saved \(.*'Own'\)"):
        edgeconv.convert(model, "float16")
    assert list(place.iterdir()) == []
    model(X[:2])
    made = edgeconv.convert(model, "float16", **PLAIN)
    assert made["float16"].source_kind == "saved_model"
    assert (place / "own.tflites" / "own" / "saved_model.pb").is_file()
    assert distance(made, "float16", model) < 0.05
    squared = keras.Sequential(
        [keras.Input((6,)), keras.layers.Lambda(lambda x: x * x)], name="squared"
    )
    assert distance(edgeconv.convert(squared, "float16", **PLAIN), "float16", squared) < 1e-3


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("is_subclassed", [False, True])
def test_a_model_is_exported_in_inference_mode(package, is_subclassed, tf, place):
    kind = importlib.import_module(package)

    class Shifting(kind.layers.Layer):
        def call(self, x: Any, training: bool = True) -> Any:
            return 3 * x + 1 if training else x

    class Subclassed(kind.Model):
        def __init__(self) -> None:
            super().__init__(name="shifting")
            self.parts = [Shifting(), kind.layers.Dense(2)]

        def call(self, x: Any) -> Any:
            return self.parts[1](self.parts[0](x))

    layers = [kind.Input((6,)), Shifting(), kind.layers.Dense(2)]
    model = Subclassed() if is_subclassed else kind.Sequential(layers)
    expected = model.predict(X[:20], verbose=0)
    made = edgeconv.convert(model, "float32", **PLAIN)
    assert distance(made, "float32", lambda _: expected) < 1e-5
    assert "__call__" not in vars(model)


def test_a_model_that_was_never_called_is_refused(keras, place):
    model = keras.Sequential([keras.layers.Dense(2)], name="open")
    with pytest.raises(InputRefused, match=r"model: 'open' .*(never called|not yet been built)"):
        edgeconv.convert(model, "float16")
    assert list(place.iterdir()) == []


def test_a_model_that_is_refused_is_named_and_not_its_file(keras, place):
    layers = [keras.Input((6,)), keras.layers.Dense(2, name="größe")]
    with pytest.raises(InputRefused) as error:
        edgeconv.convert(keras.Sequential(layers, name="net"), "float16")
    assert error.value.message.startswith("model 'net': ")
    assert list(place.glob("net.tflites/*.keras")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_labels_by_output_are_judged_by_every_verb(tf, place, name):
    module = importlib.import_module(name)
    x = RNG.normal(size=(240, 6)).astype(np.float32)
    by_output = {"kind": x[:, :3].argmax(axis=1), "age": np.rint(20 + 9 * x[:, 3])[:, None]}
    given = module.Input((6,), name="x")
    kind = module.layers.Dense(3, activation="softmax", name="kind")
    outputs = {"kind": kind(given), "age": module.layers.Dense(1, name="age")(given)}
    model = module.Model(given, outputs, name="heads")
    kind.set_weights([4 * np.eye(6, 3), np.zeros(3)])
    batches = tf.data.Dataset.from_tensor_slices((x, by_output)).batch(32)
    made = edgeconv.convert(model, to=["float32", "int8"], calibration=batches, **PLAIN)
    assert not made["int8"].calibration[0].suspicions
    shuffled = (x, by_output | {"kind": RNG.permutation(by_output["kind"])})
    suspected = edgeconv.convert(model, to="int8", out="no", calibration=shuffled, **PLAIN)
    assert len(suspected["int8"].calibration[0].suspicions) == 1
    report = edgeconv.bench(made, data=batches, **QUICK)
    for row in (report.baseline, *report.measurements):
        each = (row.accuracy, *row.metrics)
        assert [(a.output, a.metric) for a in each] == [("kind", "top1"), ("age", "mae")]
    assert all(row.metrics[0].drop is not None for row in report.measurements)
    assert report.baseline.accuracy.value > 0.99
    assert edgeconv.doctor(model, batches).trials[0].accuracy.samples == 48
    assert edgeconv.doctor(model, batches, output="kind").classes == 3
    with pytest.raises(InputRefused):
        edgeconv.doctor(model, batches, output="age")


@pytest.mark.slow
def test_a_search_is_for_one_output_of_several_with_labels(keras, place):
    given = keras.Input((6,), name="x")
    heads = {"kind": keras.layers.Dense(3, name="kind"), "age": keras.layers.Dense(1, name="age")}
    model = keras.Model(given, {name: head(given) for name, head in heads.items()}, name="heads")
    by_output = {"kind": RNG.integers(0, 3, 80), "age": X[:, 0]}
    options: dict[str, Any] = {"calibration": RNG.normal(size=(40, 6)), "to": "int8", "trials": 1}
    with pytest.raises(UsageError):
        edgeconv.tune(model, (X, by_output), 0.5, **options)
    searched = edgeconv.tune(model, (X, by_output), 0.5, output="age", out="age", **options)
    assert searched.metric == "mae"
    searched = edgeconv.tune(model, (X, {"kind": by_output["kind"]}), 0.5, out="kind", **options)
    assert searched.metric == "top1"


@pytest.mark.slow
def test_the_other_verbs_take_models_and_samples_too(keras, place):
    labels = (X[:, 0] > 0).astype(np.int64)
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(2, activation="softmax")], name="net")
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(X, labels, epochs=60, verbose=0)
    tuning = edgeconv.tune(
        model, (X, labels), 0.2, calibration=RNG.normal(size=(40, 6)), to="int8", trials=1
    )
    assert tuning.ok
    assert tuning.model == str(place / "net.tuned" / "net.keras")
    assert (place / "net.tuned" / "net.keras").is_file()
    recipe = (place / "net.tuned" / tuning.recipe_file).read_text(encoding="utf-8")
    assert "net.calibration.npz" in recipe
    words = ["convert", "net.tuned/net.keras", "--config", f"net.tuned/{tuning.recipe_file}"]
    command = [sys.executable, "-m", "edgeconv", *words, "-o", "again"]
    subprocess.run(command, check=True, env={**os.environ}, capture_output=True)
    diagnosis = edgeconv.doctor(model, (X, labels))
    assert (diagnosis.ok, diagnosis.model) == (True, "model 'net' (in memory)")
    trained = edgeconv.qat(model, (X, labels), qat_epochs=1, qat_batch=8, out="trained")
    assert trained["qat"].qat is not None
    report = edgeconv.bench(trained, baseline=model, data=(X, labels), **QUICK)
    assert report.baseline is not None
    assert edgeconv.check(report, budget={"max_size_bytes": 100_000}).ok
