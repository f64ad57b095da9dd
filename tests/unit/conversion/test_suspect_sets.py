"""`convert` with calibration samples that cannot be right, on a .tflite: what no training shows."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tiny_tflite import Graph, packed
from two_dense import two_dense

from edgeconv.cli import run
from edgeconv.types import Artifact, Suspicion

REFUSED = 3
SAMPLES = np.random.default_rng(4).gamma(1.0, size=(40, 8)).astype(np.float32)


@pytest.fixture
def convert(tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Runs `edgeconv convert` on the tiny dense model with samples; returns the code and text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path("tiny.tflite").write_bytes(two_dense())

    def converted(samples: Any, *arguments: str, methods: str = "none") -> tuple[int, str]:
        np.savez("samples.npz", x=samples)
        words = ["convert", "-q", "tiny.tflite", "-o", "out", "--calibration", "samples.npz"]
        code = run([*words, *arguments, "--methods", methods])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return converted


def manifest(recipe: str) -> Artifact:
    return msgspec.json.decode(Path(f"out/tiny.{recipe}.json").read_bytes(), type=Artifact)


def test_the_range_of_the_inputs_is_shown_and_recorded(convert):
    code, said = convert(SAMPLES, "--to", "int8")
    assert code == 0, said
    (record,) = manifest("int8").calibration
    (given,) = record.inputs
    low, high = float(SAMPLES.min()), float(SAMPLES.max())
    assert given.low >= low
    assert given.high <= high
    assert given.mean == pytest.approx(1.0, abs=0.2)
    assert (record.suspicions, record.distance) == ((), None)
    assert f"calibrated on {record.samples} samples: 'x': " in said


def test_equal_samples_refuse_what_calibrates_and_nothing_else(convert):
    code, said = convert(np.ones_like(SAMPLES), "--to", "float16,int8")
    assert code == REFUSED, said
    assert "cannot be what the model was trained on: all " in said
    assert "samples are equal" in said
    assert "they are 'x': 1 to 1, mean 1, deviation 0, whole numbers" in said
    assert "--allow-suspect-calibration converts anyway" in said
    assert [path.name for path in Path("out").glob("*.tflite")] == ["tiny.float16.tflite"]


def test_weights_alone_are_quantized_without_samples_that_cannot_be_right(convert):
    graph = Graph()
    x = graph.tensor("x", (1, 8), "float32", dynamic=True)
    # One weight of each row leaves no steps for the others, which a correction of the bias heals.
    values = np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32)
    values[:, 0] = 300
    weights = graph.tensor("w", values.shape, "float32", data=values)
    y = graph.computed("y", (1, 64), "FULLY_CONNECTED", [x, weights, -1], dynamic=True)
    model = packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))
    Path("tiny.tflite").write_bytes(model)
    samples = np.ones((40, 8), np.float32)
    samples[:, 0] = 0
    names = ("dynamic", "weight-only-int8")
    code, said = convert(samples, "--to", ",".join(names), methods="auto")
    assert code == 0, said
    for name in names:
        record = manifest(name).post_training
        assert record is None or record.methods == ()
    assert "no post-training methods were tried: the calibration samples cannot" in said
    (dynamic, *_) = names
    code, said = convert(samples, "--to", dynamic, methods="bias-correction")
    assert code == REFUSED
    assert "--methods none uses no samples" in said


def test_what_was_allowed_warns_and_is_made_again_without(convert):
    """A file that the option let through is not up to date for a run without it."""
    equal = np.ones_like(SAMPLES)
    code, said = convert(equal, "--to", "int8", "--allow-suspect-calibration")
    assert code == 0, said
    artifact = manifest("int8")
    (record,) = artifact.calibration
    (suspicion,) = record.suspicions
    assert suspicion == Suspicion(f"all {record.samples} samples are equal", is_certain=True)
    assert f"calibration samples: {suspicion.reason}" in artifact.verification.warnings
    assert "warning: calibration samples: all" in said
    assert convert(equal, "--to", "int8")[0] == REFUSED


def test_few_different_samples_only_warn(convert):
    code, said = convert(SAMPLES[np.arange(40) % 3], "--to", "int8")
    assert code == 0, said
    assert "warning: calibration samples: only 3 of " in said
