"""The README, followed block by block as a stranger would, in an empty folder."""

import json
from pathlib import Path

import pytest
from documents import blocks, run
from places import ROOT
from reports import accuracies

from edgeconv.requests.config.tables import read_config

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def followed(machine, tmp_path_factory) -> Path:
    """The folder in which everything on the page was done."""
    folder = tmp_path_factory.mktemp("readme")
    run([*blocks(README)], folder, lambda text: machine.shell(folder, text))
    return folder


def test_the_ten_lines_give_a_verified_file(followed):
    manifest = json.loads((followed / "my_model.tflites/my_model.int8.json").read_text("utf-8"))
    assert manifest["verification"]["outputs"][0]["snr_db"] > 6
    assert (followed / "report/report.html").is_file()
    assert accuracies(followed / "report")["int8"] > 0.85


def test_the_ci_and_build_lines_give_a_lock_and_c_code(followed):
    assert "[model.my_model.stage.int8]" in (followed / "edgeconv.lock").read_text(encoding="utf-8")
    assert (followed / "junit.xml").is_file()
    assert (followed / "my_model.o").is_file()
    assert read_config(followed / "edgeconv.toml").models["my_model"].budget is not None


def test_the_python_prints_the_files(followed, machine):
    (example,) = [block.text for block in blocks(README) if block.language == "python"]
    lines = machine.python(followed, "-c", example).splitlines()
    path, size = lines[-1].split()
    assert path.endswith("/my_model.int8.tflite")
    assert (followed / path).stat().st_size == int(size)
