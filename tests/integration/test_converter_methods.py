"""Post-training methods on the files of TFLiteConverter, where it was chosen or is needed."""

from pathlib import Path

import pytest

from edgeconv import convert
from edgeconv.types import Artifact
from edgeconv.types.errors import UsageError

ZOO = "keras_zoo:of_the_converter"

METHODS = ["bias-correction", "rounding"]


def int8(models: Path, out: Path, methods: list[str]) -> Artifact:
    source = str(models / "image.npz")
    conversion = convert(
        models / "leaky.keras",
        out=out,
        to=["int8"],
        calibration=source,
        methods=methods,
        engine="tflite",
    )
    assert conversion.failures == ()
    return conversion.artifacts[0]


@pytest.mark.slow
def test_auto_makes_the_file_of_a_chosen_converter(models, tmp_path):
    artifact = int8(models, tmp_path, ["auto"])
    assert artifact.engine == "tflite"
    assert artifact.float_operators == ()


@pytest.mark.slow
def test_methods_bring_a_file_of_the_converter_closer_to_float(models, tmp_path):
    plain = int8(models, tmp_path / "plain", ["none"])
    refined = int8(models, tmp_path / "refined", METHODS)
    assert refined.engine == plain.engine == "tflite"
    assert set(refined.post_training.methods) == set(METHODS)
    assert any("TFLiteConverter cannot take" in note for note in refined.details)
    gain_db = refined.verification.outputs[0].snr_db - plain.verification.outputs[0].snr_db
    assert gain_db > 1.0


@pytest.mark.slow
def test_a_fused_lstm_of_a_tflite_becomes_integer(models, tmp_path):
    source = str(models / "steps.npz")
    conversion = convert(models / "lstm.tflite", out=tmp_path, to=["int8"], calibration=source)
    assert conversion.failures == ()
    artifact = conversion.artifacts[0]
    assert artifact.engine == "tflite"
    assert artifact.float_operators == ()
    assert artifact.quantized_weight_share > 0.9
    names = {operator.name for operator in artifact.operators}
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in names
    assert artifact.verification.outputs[0].snr_db > 20


def test_other_recipes_of_a_tflite_are_not_for_the_converter(models, tmp_path):
    with pytest.raises(UsageError, match="makes only int8 and int16x8"):
        convert(models / "lstm.tflite", out=tmp_path, to=["dynamic"], engine="tflite")
