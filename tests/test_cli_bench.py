"""edgeconv bench, where it needs no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from report_example import training

from edgeconv.cli import run

if TYPE_CHECKING:
    from pathlib import Path

# As records were before they had a format.
OLD = {
    "model": "digits_cnn",
    "strategy": "MirroredStrategy",
    "replicas": 2,
    "global_batch": 32,
    "epochs": 15,
    "seed": 0,
    "seconds": 9.1,
    "train_samples": 1198,
    "metrics": [{"loss": 0.2, "accuracy": 0.95}],
    "saved_model": "/models/digits_cnn/1",
}


@pytest.mark.parametrize("content", [msgspec.json.encode(OLD), b"{", b"", b'{"format": 2}'])
def test_a_training_record_of_another_version_is_refused_and_the_hint_says_what_to_give(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "1.training.json"
    record.write_bytes(content)
    assert run(["bench", "m.tflite", "--training", str(record)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"error: {record} is no training record of this version: ")
    assert "\n  next: give the N.training.json that this version's `edgeconv train` wrote" in said


def test_a_training_record_that_is_not_there_is_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "m.tflite", "--training", str(tmp_path / "none.json")]) == 3
    assert "none.json does not exist" in capsys.readouterr().err


def test_a_training_record_of_this_version_is_read_before_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "1.training.json"
    record.write_bytes(msgspec.json.encode(training()))
    assert run(["bench", str(tmp_path / "m.tflite"), "--training", str(record)]) == 3
    assert "m.tflite does not exist" in capsys.readouterr().err
