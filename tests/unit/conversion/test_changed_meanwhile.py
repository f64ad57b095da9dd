"""What changes while it is read is never published, nor kept under the hash of what it was."""

from pathlib import Path
from typing import Any

import pytest
from build_project import calibrate, write_project
from tiny_tflite import float_model, packed
from wording import fails

from edgeconv import convert
from edgeconv.conversion import run
from edgeconv.types.errors import InputRefused


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    project = write_project(tmp_path / "project")
    monkeypatch.chdir(project)
    return project


def int8(directory: str) -> bytes:
    done = convert("net.tflite", out=directory, to=["int8"], calibration="cal.npz")
    return Path(directory, done.artifacts[0].file).read_bytes()


def test_samples_that_change_while_they_are_read_spoil_no_cache(project, monkeypatch):
    opened = run.data.opened_samples

    def late(*arguments: Any, **named: Any) -> Any:
        calibrate(project / "cal.npz", 2)
        return opened(*arguments, **named)

    monkeypatch.setattr(run.data, "opened_samples", late)
    with fails(InputRefused):
        int8("spoilt")
    assert not Path("spoilt").exists()
    monkeypatch.setattr(run.data, "opened_samples", opened)
    second = int8("second")
    calibrate(project / "cal.npz", 1)
    first = int8("first")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(project / "none"))
    assert first == int8("again") != second


def test_a_model_that_changes_while_it_is_read_is_refused(project):
    def told(line: str) -> None:
        if line.startswith("reading"):
            Path("net.tflite").write_bytes(packed(float_model(names=("a", "b"))))

    with fails(InputRefused):
        convert("net.tflite", out="out", to=["float32"], on_progress=told)
    assert not Path("out").exists()
