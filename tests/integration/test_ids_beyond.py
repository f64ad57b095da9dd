"""Tokens beyond the vocabulary of a model: the samples are blamed, and not an operator."""

from pathlib import Path

import pytest

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.types.errors import SuspectCalibration

ZOO = "keras_zoo:tokens"


@pytest.mark.parametrize(
    ("model", "recipe", "samples"),
    [
        ("three_lstm.keras", "int8", "beyond.npz"),
        ("three_lstm.keras", "int8", "one.npz"),
        ("three_gru.keras", "dynamic", "beyond.npz"),
        pytest.param("two_lstm.keras", "int8", "beyond.npz", marks=pytest.mark.slow),
        ("three_pooled.keras", "int8", "one.npz"),
        ("three_pooled.keras", "float32", "beyond.npz"),
        ("saved", "int8", "beyond.npz"),
    ],
)
def test_tokens_beyond_the_vocabulary_are_said(model, recipe, samples, models, tmp_path):
    said, hint = refusal(models / model, recipe, models / samples, tmp_path / "out")
    assert samples in said
    assert "not in [0, 50)" in said
    assert "vocabulary" in hint or "preprocessing" in hint
    assert not list((tmp_path / "out").glob("*.tflite"))


def refusal(model: Path, recipe: str, samples: Path, out: Path) -> tuple[str, str]:
    """What is said of the samples, whether all is refused or what they calibrate, and the hint."""
    try:
        done = convert(str(model), out=str(out), to=[recipe], calibration=str(samples))
    except SuspectCalibration as error:
        return error.headline, error.hint
    (failure,) = done.failures
    assert failure.error == "SuspectCalibration"
    return failure.message.splitlines()[0], failure.hint


@pytest.mark.parametrize(
    "model", [pytest.param("two_lstm.keras", marks=pytest.mark.slow), "three_pooled.keras", "saved"]
)
def test_tokens_within_the_vocabulary_are_taken(model, models, tmp_path):
    # They are whole numbers up to 255, as pixels are, which are tried in other scales too.
    done = convert(
        str(models / model),
        out=str(tmp_path),
        to=["float32", "int8"],
        calibration=str(models / "right.npz"),
    )
    assert not done.failures
    assert [artifact.recipe.name for artifact in done.artifacts] == ["float32", "int8"]


@pytest.mark.slow
def test_an_integer_input_does_not_round_ids(models, tmp_path):
    done = convert(
        str(models / "three_pooled.keras"),
        out=str(tmp_path),
        to=make_recipes(["int8"], input_type="int8", output_type="int8"),
        calibration=str(models / "right.npz"),
    )
    (failure,) = done.failures
    assert "'ids'" in failure.message
    assert "indices" in failure.message
    assert not list(tmp_path.glob("*.tflite"))
