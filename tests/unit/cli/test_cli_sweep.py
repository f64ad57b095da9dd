"""`edgeconv sweep` ends with the exit code that `convert` gives for the same model."""

from embed_models import SIGNED
from tiny_tflite import float_model, int8_model, packed

from edgeconv.cli import run
from edgeconv.types.errors import InputRefused, ToolFailed, exit_code_of

SWEEP = 'models = ["*.tflite"]\nrecipes = ["float32"]\ntiming = false\n'


def test_a_refused_model_has_the_same_exit_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine.tflite").write_bytes(packed(float_model(signature=SIGNED)))
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    assert run(["convert", "int8.tflite", "--to", "float32"]) == InputRefused.exit_code
    assert run(["sweep", "sweep.toml"]) == InputRefused.exit_code
    assert run(["sweep", "sweep.toml", "--status"]) == InputRefused.exit_code


def test_the_worst_of_several_counts():
    assert exit_code_of([]) == 0
    assert exit_code_of(["SuspectCalibration", "UnsupportedOperators"]) == 3
    assert exit_code_of(["InputRefused", "WorkerKilled"]) == ToolFailed.exit_code
    assert exit_code_of(["of another version"]) == ToolFailed.exit_code
