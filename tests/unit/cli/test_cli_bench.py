"""edgeconv bench, where it needs no model."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from report_example import training
from tiny_tflite import float_model, packed
from wording import says

from edgeconv.cli import run
from edgeconv.types import Report

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
    content, tmp_path, capsys
):
    record = tmp_path / "1.training.json"
    record.write_bytes(content)
    assert run(["bench", "m.tflite", "--training", str(record)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"error: {record} is not a training record of this version: ")
    says(said)


def test_a_training_record_that_is_not_there_is_said_to_be_so(tmp_path, capsys):
    assert run(["bench", "m.tflite", "--training", str(tmp_path / "none.json")]) == 3
    says(capsys.readouterr().err)


def test_a_training_record_of_this_version_is_read_before_the_models(tmp_path, capsys):
    record = tmp_path / "1.training.json"
    record.write_bytes(msgspec.json.encode(training()))
    assert run(["bench", str(tmp_path / "m.tflite"), "--training", str(record)]) == 3
    says(capsys.readouterr().err)


@pytest.fixture
def model(tmp_path) -> Path:
    file = tmp_path / "tiny.tflite"
    file.write_bytes(packed(float_model(signature=("serving_default", ["x"], ["y"]))))
    return file


def test_what_was_typed_is_in_the_report_and_every_option_arrives(model, tmp_path, capsys):
    rng = np.random.default_rng(0)
    data = str(tmp_path / "data.npz")
    np.savez(data, x=rng.normal(size=(20, 4)).astype(np.float32), labels=np.arange(20) % 3)
    words = (
        *("bench", str(model), "--data", data, "--runtime", "fake", "--rounds", "2"),
        *("--repeats", "7", "--metric", "f1", "--metric", "top1", "--title", "a & b"),
    )
    assert run([*words, "--json", "-q"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert report.command == ("edgeconv", *words)
    assert report.title == "a & b"
    (row,) = report.measurements
    assert row.runtime == "fake 1"
    assert [row.accuracy.metric, *(one.metric for one in row.metrics)] == ["f1", "top1"]
    assert [len(samples) for samples in row.latency.rounds_us] == [7, 7]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--runtime", "litrt"], 2),
        (["--metric", "topp5"], 2),
        (["--metric", "mae"], 3),
        (["--runtime", "fake:failing=tiny.tflite"], 4),
        (["--accelerator", "gpu"], 2),
    ],
)
def test_what_cannot_be_measured_ends_with_its_exit_code(options, code, model, capsys):
    assert run(["bench", str(model), *options, "-q"]) == code
    says(capsys.readouterr().err)
