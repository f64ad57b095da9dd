"""What is changed in a model so that it converts, besides its shapes and loops."""

from pathlib import Path

import pytest
from places import SHARED

from edgeconv import convert
from edgeconv.quantize.choose import MIN_SAMPLES_TO_CHOOSE
from edgeconv.types import Artifact

ZOO = "keras_zoo:other_floats"
SERVING = SHARED / "tf_serving_savedmodels"


def made(model: Path, out: Path, to: list[str], calibration: Path | None) -> dict[str, Artifact]:
    source = str(calibration) if calibration else None
    conversion = convert(model, out=out, to=to, calibration=source)
    assert conversion.failures == ()
    return {artifact.recipe.name: artifact for artifact in conversion.artifacts}


@pytest.mark.parametrize("name", ["mixed", "mixed.keras"])
def test_a_model_of_mixed_precision_is_computed_in_float32_and_that_is_said(name, models, tmp_path):
    artifacts = made(models / name, tmp_path, ["float32", "int8"], models / "image.npz")
    floating = artifacts["float32"]
    assert [step.attempt for step in floating.ladder] == [
        "in the floats it was trained in",
        "computed in float32",
    ]
    assert "computes in float16, which TFLite does not: " in floating.ladder[0].failed
    assert {t.dtype for t in (*floating.signature.inputs, *floating.signature.outputs)} == {
        "float32"
    }
    # Its own rounding of 11 bits is all that it differs by.
    assert 50 < floating.verification.outputs[0].snr_db < 100
    assert artifacts["int8"].float_operators == ()


def test_an_unchanged_model_of_mixed_precision_is_not_made_again(models, tmp_path):
    made(models / "mixed", tmp_path, ["float32"], None)
    assert convert(models / "mixed", out=tmp_path, to=["float32"]).reused == ("float32",)


@pytest.mark.slow
def test_decisions_of_a_model_are_not_taken_for_probabilities_of_wrong_samples(models, tmp_path):
    """One-hot classes and alarms are exactly 0 and 1 for right samples."""
    artifact = made(models / "decides", tmp_path, ["int8"], models / "row.npz")["int8"]
    assert artifact.calibration[0].suspicions == ()
    graded = {each.output: each.grade for each in artifact.verification.outputs}
    assert graded["alarm"] == "close"


@pytest.mark.slow
def test_more_samples_are_not_advised_where_a_branch_prevents_methods(models, tmp_path):
    artifact = made(models / "branches", tmp_path, ["int8"], models / "row.npz")["int8"]
    assert artifact.calibration[0].samples >= MIN_SAMPLES_TO_CHOOSE
    assert "IF" in artifact.float_operators
    assert artifact.verification.grade in ("usable", "poor")
    assert "int16x8" in artifact.verification.advice
    assert "samples" not in artifact.verification.advice


def test_a_model_of_float64_keeps_its_inputs(models, tmp_path):
    artifact = made(models / "double", tmp_path, ["float32"], models / "x.npz")["float32"]
    assert artifact.signature.inputs[0].dtype == "float64"
    assert artifact.verification.outputs[0].snr_db > 100


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("name", ["argmax", "argmax.keras", "argmin"])
def test_the_largest_of_keras_3_is_taken_without_sign_bits(name, batch, models, tmp_path):
    """TFLiteConverter alone ends in "TF Select ops: BitwiseAnd"."""
    source = str(models / "image.npz")
    conversion = convert(
        models / name, out=tmp_path, to=["float32", "int8"], calibration=source, batch=batch
    )
    assert conversion.failures == ()
    for artifact in conversion.artifacts:
        (output,) = artifact.signature.outputs
        assert output.shape == (batch or -1, 6, 6)
        (answers,) = artifact.verification.outputs
        assert answers.kind == "labels"
        assert answers.argmax_agreement > 0.95
    assert conversion["int8"].float_operators == ()


@pytest.mark.slow
def test_weights_of_a_recurrent_layer_become_small_in_every_format_of_small_weights(
    models, tmp_path
):
    recipes = ["float32", "float16", "dynamic", "weight-only-int8"]
    artifacts = made(models / "recurrent.h5", tmp_path, recipes, models / "steps.npz")
    assert artifacts["float16"].float16_weight_share > 0.9
    for name in ("dynamic", "weight-only-int8"):
        assert artifacts[name].quantized_weight_share > 0.9
        assert artifacts[name].size_bytes < artifacts["float32"].size_bytes / 2
        assert artifacts[name].verification.outputs[0].snr_db > 35
