"""`convert` with calibration samples that cannot be right, on a .tflite: what no training shows."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from two_dense import two_dense

from edgeconv.cli import run
from edgeconv.types import Artifact, Suspicion

REFUSED = 3
SAMPLES = np.random.default_rng(4).gamma(1.0, size=(40, 8)).astype(np.float32)


@pytest.fixture
def convert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs `edgeconv convert` on the tiny dense model with samples; returns the code and text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    Path("tiny.tflite").write_bytes(two_dense())

    def converted(samples: Any, *arguments: str) -> tuple[int, str]:
        np.savez("samples.npz", x=samples)
        words = ["convert", "-q", "tiny.tflite", "-o", "out", "--calibration", "samples.npz"]
        code = run([*words, *arguments, "--methods", "none"])
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
