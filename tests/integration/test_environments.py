"""Environments that are not complete, and those that cannot be made."""

import subprocess
import sys
import time

import pytest
from environments import plant

from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.system.store import cache_directory
from edgeconv.types.errors import ToolFailed

PRESENT = sys.version_info[:2]

pytestmark = pytest.mark.skipif(
    not (3, 9) <= PRESENT <= (3, 11), reason="tflite-runtime has no wheels for this Python"
)


@pytest.mark.parametrize("damage", ["marker", "torn marker", "python", "not made here", "module"])
def test_one_that_is_not_complete_is_not_used_and_a_failure_to_make_it_leaves_nothing(
    damage, monkeypatch
):
    name = "tflite-runtime-2.12.0-py{}{}".format(*PRESENT)
    directory = plant(name, sealed=damage != "not made here")
    if damage == "python":
        (directory / "venv" / "bin" / "python").unlink()
    elif damage == "module":
        (directory / "venv" / "bin" / "sitecustomize.py").write_text("evil")
    elif damage != "not made here":
        (directory / "ready.json").write_text("" if damage == "marker" else '{"runtime"')
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said: list[str] = []
    with pytest.raises(ToolFailed) as caught:
        isolated_target(parse_target_runtime("tflite-runtime==2.12.0"), said.append)
    assert "installing tflite-runtime==2.12.0 for Python" in caught.value.message
    assert "tflite-runtime was not found in the provided package locations" in str(caught.value)
    assert "package index" in caught.value.hint
    assert "in its own environment" in said[0]
    assert not directory.exists()


def test_offline_and_without_a_cache_it_is_said_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ToolFailed, match="because the network was disabled") as caught:
        isolated_target(parse_target_runtime("tflite-runtime==2.12.0"))
    assert "UV_OFFLINE=1 installs what is in its cache" in caught.value.hint


def test_a_configuration_of_uv_around_the_cache_is_not_read(tmp_path, monkeypatch):
    """A cache may be in a stranger's checkout."""
    (tmp_path / "uv.toml").write_text('[[index]]\nurl = "http://127.0.0.1:9/"\ndefault = true\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ToolFailed) as caught:
        isolated_target(parse_target_runtime("tflite-runtime==2.12.0"))
    assert "127.0.0.1" not in str(caught.value)


def test_a_process_that_is_killed_while_it_makes_one_leaves_nothing_that_would_be_used(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code = (
        "from edgeconv.runtimes.isolated import isolated_target as make\n"
        "from edgeconv.runtimes.choice import parse_target_runtime as parse\n"
        "make(parse('tflite-runtime'))\n"
    )
    directory = cache_directory() / "runtimes" / "tflite-runtime-2.14.0-py{}{}".format(*PRESENT)
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while not (directory / "venv").exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert (directory / "venv").exists()
    assert not (directory / "ready.json").exists()
    # Neither the half of it nor the lock is in the way.
    with pytest.raises(ToolFailed, match="not found in the provided package locations"):
        isolated_target(parse_target_runtime("tflite-runtime"))
