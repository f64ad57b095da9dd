"""Models that act differently in training: converted as `predict` answers, or refused by name."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeconv import convert
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.tf import keras_files
from edgeconv.tf.training_mode import refuse_training
from edgeconv.types import Execution, Opening
from edgeconv.types.errors import RunsInTraining
from edgeconv.types.words import SERVING_DEFAULT

ZOO = "training_zoo:write"

ANSWERING = ("tutorial", "mixed", "depth", "doubled", "nested", "sampled", "untold", "two_tutorial")


@pytest.fixture(autouse=True)
def _here(models, monkeypatch):
    monkeypatch.chdir(models)


def opening(models: Path) -> Opening:
    return Opening(custom_objects=("./own_layers.py",), directory=str(models))


def exported(models: Path, name: str, target: Path) -> Any:
    """The signature of a Keras file as it is exported for a conversion."""
    import tensorflow as tf

    keras_files.export(str(models / f"{name}.keras"), "keras", str(target), opening=opening(models))
    loaded = tf.saved_model.load(str(target))
    return loaded, loaded.signatures[SERVING_DEFAULT]


@pytest.mark.parametrize("name", ANSWERING)
def test_a_keras_file_is_exported_as_its_predict_answers(name, models, tmp_path):
    x, expected = np.load("x.npz")["image"][:16], np.load(f"{name}.npy")
    _, serve = exported(models, name, tmp_path / "exported")
    (only,) = serve.structured_input_signature[1]
    (answer,) = serve(**{only: x}).values()
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    refuse_training(str(tmp_path / "exported"), [SERVING_DEFAULT], is_keras=True)


@pytest.mark.parametrize("name", ["tutorial", "doubled"])
def test_the_published_file_answers_as_predict_does(name, models, tmp_path):
    done = convert(
        f"{name}.keras",
        out=str(tmp_path / "out"),
        to=["float32", "int8"],
        calibration="x.npz",
        opening=opening(models),
        execution=Execution(allow_code=True),
    )
    assert done.artifacts[1].verification.outputs[0].snr_db > 20
    file = InProcessModel(
        open_interpreter((tmp_path / "out" / f"{name}.float32.tflite").read_bytes())
    )
    x, expected = np.load("x.npz")["image"][:16], np.load(f"{name}.npy")
    answers = [next(iter(file.invoke({"image": row[None]}).values())) for row in x]
    np.testing.assert_allclose(
        np.concatenate(answers), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("three_normal", "bnorm"),
        ("three_drop", "drop"),
        ("two_normal", "bnorm"),
        ("two_drop", "drop"),
    ],
)
def test_a_layer_that_the_author_called_in_training_mode_is_named(file, layer, models, tmp_path):
    with pytest.raises(RunsInTraining) as refused:
        convert(f"{file}.keras", out=str(tmp_path / "out"), to=["float32"])
    assert refused.value.cause.layers == (layer,)
    assert layer in refused.value.headline
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("directory", "operators", "layers"),
    [
        (
            "three_exported",
            {"StatelessRandomUniformV2"},
            {"random_flip", "random_rotation", "random_zoom"},
        ),
        ("two_normal", {"FusedBatchNormV3"}, {"bnorm"}),
        ("two_drop", {"RandomUniform"}, {"drop"}),
        ("two_training", {"FusedBatchNormV3", "RandomUniform"}, {"bnorm", "drop"}),
    ],
)
def test_a_saved_model_in_training_mode_is_refused_with_its_layers(
    directory, operators, layers, tmp_path
):
    with pytest.raises(RunsInTraining) as refused:
        convert(directory, out=str(tmp_path / "out"), to=["float32"])
    cause = refused.value.cause
    assert operators <= set(cause.operators)
    named = {re.sub(r"(_\d+)+$", "", path.split("/")[-1]) for path in cause.layers}
    assert layers <= named
    assert "inference mode" in refused.value.hint


@pytest.mark.parametrize(
    ("file", "layer", "operator"),
    [
        ("noisy", "noisy", "StatelessRandomNormalV2"),
        # What `predict` augments, too, since `call` of this model has no argument `training`.
        ("untold_augmented", "random_flip", "StatelessRandomUniformV2"),
    ],
)
def test_random_numbers_in_a_keras_file_are_refused_with_their_layer(
    file, layer, operator, models, tmp_path
):
    with pytest.raises(RunsInTraining) as refused:
        convert(
            f"{file}.keras",
            out=str(tmp_path / "out"),
            to=["float32"],
            opening=opening(models),
            execution=Execution(allow_code=True),
        )
    assert [path for path in refused.value.cause.layers if layer in path]
    assert operator in refused.value.cause.operators


@pytest.mark.parametrize("directory", ["two_tutorial", "fixed_seed", "two_layer_normal"])
def test_a_saved_model_in_inference_mode_is_not_taken_for_one_that_trains(directory, models):
    refuse_training(str(models / directory), [SERVING_DEFAULT], is_keras=False)
