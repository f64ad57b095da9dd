"""`convert --to qat`, `edgeconv.qat` and the report: the whole way, on scikit-learn's digits."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from edgeconv.models import digits_cnn

import edgeconv
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.store import read_noun
from edgeconv.types import Artifact, Qat
from edgeconv.types.errors import UsageError

QUICK = Qat(epochs=2, warmup_steps=4)


def built():
    from keras import Sequential, layers

    return Sequential(
        [
            layers.Input((8, 8, 1), name="image"),
            layers.Conv2D(8, 3, use_bias=False, name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax", name="scores"),
        ]
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A Keras 3 model of the digits, in memory, and a directory with it and its data."""
    import keras

    keras.utils.set_random_seed(0)
    place, data, model = tmp_path_factory.mktemp("digits"), digits_cnn.data(), built()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(data.x_train["image"], data.y_train, epochs=10, batch_size=32, verbose=0)
    model.save(place / "digits.keras")
    model.export(place / "digits", format="tf_saved_model", verbose=False)
    np.savez(place / "train.npz", image=data.x_train["image"], labels=data.y_train)
    np.savez(place / "test.npz", image=data.x_test["image"], labels=data.y_test)
    np.savez(place / "unlabeled.npz", image=data.x_train["image"])
    strange = np.full((len(data.y_train), 3), np.nan)
    np.savez(place / "strange.npz", image=data.x_train["image"], labels=strange)
    np.savez(place / "eleven.npz", image=data.x_train["image"], labels=data.y_train + 1)
    return model, place


def converted(place, out, settings=QUICK, *names, training="train.npz", model="digits.keras", **io):
    recipes = make_recipes([*names, "qat"], qat=settings, **io)
    return edgeconv.convert(place / model, out=out, to=recipes, training=str(place / training))


@pytest.fixture(scope="module")
def both(trained, tmp_path_factory):
    """int8 and QAT of the same model."""
    _, place = trained
    out = tmp_path_factory.mktemp("both")
    return out, converted(place, out, QUICK, "int8")


def artifact(conversion, name):
    (found,) = (one for one in conversion.artifacts if one.recipe.name == name)
    return found


def test_qat_is_published_beside_int8_as_integers_and_with_its_training(both):
    out, conversion = both
    assert not conversion.failures
    qat = artifact(conversion, "qat")
    assert (qat.engine, qat.float_operators, qat.calibration) == ("tflite", (), ())
    assert qat.quantized_weight_share == 1.0
    assert read_noun(out / "digits.qat.json", Artifact, what="manifest") == qat
    record = qat.qat
    assert record.rebuilt
    assert record.rebuilt_max_abs_error <= 1e-5
    assert len(record.training.epochs) == QUICK.epochs
    assert {layer.name: layer.treatment for layer in record.layers}["conv"] != "float"
    assert record.seconds > record.training.seconds > 0
    assert artifact(conversion, "int8").qat is None
    names = {spec.name for one in conversion.artifacts for spec in one.signature.outputs}
    assert names == {"scores"}


def test_its_file_computes_what_was_trained(both):
    _, conversion = both
    (error,) = artifact(conversion, "qat").verification.outputs
    assert artifact(conversion, "qat").verification.reference.startswith("model trained with")
    assert error.snr_db > 20


def test_samples_that_were_never_trained_on_say_what_it_costs(both):
    _, conversion = both
    validated = artifact(conversion, "qat").qat.validated
    assert validated.samples == round(0.1 * 1201)
    assert validated.float_accuracy > 0.9
    assert validated.drop == pytest.approx(validated.float_accuracy - validated.accuracy)
    low, high = validated.interval
    assert low <= validated.drop <= high
    training = artifact(conversion, "qat").qat.training
    assert training.train_samples + training.validation_samples == 1201


def test_the_same_again_trains_nothing(both, trained, monkeypatch):
    out, first = both

    def start(*_args, **_options):
        raise AssertionError("a child was started")

    monkeypatch.setattr("edgeconv.conversion.run.start_task", start)
    again = converted(trained[1], out, QUICK, "int8")
    assert set(again.reused) == {"int8", "qat"}
    assert artifact(again, "qat") == artifact(first, "qat")


def test_the_report_pairs_qat_with_int8(both, trained):
    out, _ = both
    report = edgeconv.bench(
        [out], data=str(trained[1] / "test.npz"), baseline=trained[1] / "digits.keras"
    )
    (compared,) = report.comparisons
    assert "qat" in compared.model
    assert compared.interval[0] <= compared.difference <= compared.interval[1]
    measured = {one.recipe: one for one in report.measurements}
    assert measured["qat"].accuracy.value > 0.9
    assert measured["qat"].accuracy_drop_interval is not None


@pytest.mark.slow
def test_a_model_in_memory_under_mirrored_strategy_with_integer_ends(trained, tmp_path):
    model, place = trained
    conversion = edgeconv.qat(
        model, str(place / "train.npz"), out=tmp_path, qat_epochs=1, strategy="mirrored", io="int8"
    )
    made = artifact(conversion, "qat")
    assert made.qat.training.replicas == 2
    assert [spec.dtype for spec in (*made.signature.inputs, *made.signature.outputs)] == [
        "int8",
        "int8",
    ]
    assert (tmp_path / f"{model.name}.keras").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "training"),
    [("labels", "unlabeled.npz"), ("model", "strange.npz")],
)
def test_without_labels_it_learns_from_the_float_model(trained, tmp_path, target, training):
    settings = Qat(epochs=1, target=target)
    made = artifact(converted(trained[1], tmp_path, settings, training=training), "qat")
    assert made.qat.validated is None
    assert any("has no labels" in note for note in made.notes) is (target == "labels")
    assert made.qat.training.epochs[0].validation["explained_variance"] > 0.9


@pytest.mark.slow
def test_a_layer_that_is_not_asked_for_stays_float_unless_all_are_to_be_integers(trained, tmp_path):
    settings = Qat(epochs=1, layers=("conv", "norm", "relu"))
    refused = converted(trained[1], tmp_path, settings, full_integer=True)
    assert "scores" in refused.failures[0].message
    allowed = converted(trained[1], tmp_path, settings)
    made = artifact(allowed, "qat")
    assert "FULLY_CONNECTED" in made.float_operators
    assert any("scores" in note for note in made.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "digits"}, r"made from: .*digits\.keras"),
        ({"training": "eleven.npz"}, "labels from 1 to 10, and the model has 10 classes"),
        pytest.param(
            {"settings": Qat(layers=("convv",))}, "did you mean 'conv'", marks=pytest.mark.slow
        ),
        pytest.param(
            {"settings": Qat(global_batch=5000)},
            "fewer than one global batch of 5000",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_and_nothing_is_published(
    trained, tmp_path, options, said
):
    out = tmp_path / "out"
    conversion = converted(trained[1], out, **options)
    (failure,) = conversion.failures
    assert re.search(said, f"{failure.message}\n{failure.hint}"), failure
    assert not list(out.glob("*.tflite"))


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (["qat"], {}, "qat needs samples to train on"),
        (["float32"], {"training": "x.npz"}, "--training is for the recipe qat"),
        (
            ["qat"],
            {"training": "train.npz", "shape": {"image": (1, 8, 8, 1)}},
            "--shape does not work with qat",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused_at_once(
    trained, tmp_path, names, options, said, monkeypatch
):
    monkeypatch.chdir(trained[1])
    with pytest.raises(UsageError, match=said):
        edgeconv.convert("digits.keras", out=tmp_path / "out", to=names, **options)


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on(trained, tmp_path):
    _, place = trained
    command = [sys.executable, "-m", "edgeconv", "convert", str(place / "digits.keras")]
    command += ["-o", str(tmp_path / "out"), "--to", "qat", "--training", str(place / "train.npz")]
    command += ["--qat-epochs", "10"]
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        for line in first.stderr:
            if line.startswith("epoch 3/10"):
                break
        os.killpg(first.pid, signal.SIGKILL)
    time.sleep(1)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "resumed at step" in again.stderr
    made = msgspec.json.decode(Path(tmp_path, "out", "digits.qat.json").read_bytes(), type=Artifact)
    assert made.qat.training.resumed_at
    assert len(made.qat.training.epochs) == 10
