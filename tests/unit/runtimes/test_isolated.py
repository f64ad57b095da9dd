import ast
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from environments import plant
from tiny_tflite import run
from wording import fails

from edgeconv.runtimes import isolated
from edgeconv.runtimes.choice import parse_target_runtime, recorded_target
from edgeconv.runtimes.conversation import relu_model
from edgeconv.runtimes.isolated import installed, isolated_target
from edgeconv.runtimes.local import RUNNER, RuntimePython
from edgeconv.system.store import cache_directory
from edgeconv.system.store.cache import prune_environments
from edgeconv.types import TargetRuntime
from edgeconv.types.errors import OutputRefused, RuntimeUnusable, UsageError

PRESENT = sys.version_info[:2]
needs_wheels = pytest.mark.skipif(
    not (3, 9) <= PRESENT <= (3, 11), reason="tflite-runtime has no wheels for this Python"
)


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("litert", "litert", ""),
        ("litert==2.1.0", "litert", "2.1.0"),
        ("tflite-runtime", "tflite-runtime", "2.14.0"),
        (" tflite-runtime == 2.9.1 ", "tflite-runtime", "2.9.1"),
        ("tflite-runtime==2.14", "tflite-runtime", "2.14.0"),
        ("litert==2.1.0rc1", "litert", "2.1.0rc1"),
        ("tflite-runtime==2.5.0.post1", "tflite-runtime", "2.5.0.post1"),
        ("tflite-micro", "tflite-micro", "0.dev20261023182759"),
        ("tflite-micro==0.dev20260112075034", "tflite-micro", "0.dev20260112075034"),
    ],
)
def test_a_name_is_read_and_written_back(text, name, version):
    runtime = parse_target_runtime(text)
    assert runtime == TargetRuntime(name=name, version=version)
    assert parse_target_runtime(str(runtime)) == runtime


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ("tflite_runtime 2.14.0", "tflite-runtime==2.14.0"),
        ("ai_edge_litert 2.1.0", "litert==2.1.0"),
        ("tflite_micro 0.dev20261023182759", "tflite-micro==0.dev20261023182759"),
    ],
)
def test_what_a_manifest_records_names_the_runtime(recorded, text):
    assert str(recorded_target(recorded)) == text


@pytest.mark.parametrize(
    "text",
    [
        "tflite_runtime==2.14.0",
        *("litert==", "litert==2", "litert==2.x", "litert==2.1.0 --pre"),
        *("litert>=2.0", "litert=2.0", ""),
    ],
)
def test_a_misspelt_name_a_bad_version_and_another_grammar_are_refused(text):
    with fails(UsageError):
        parse_target_runtime(text)


def test_a_python_of_the_users_is_not_an_environment_and_nothing_is_written_next_to_it(tmp_path):
    """Its project is where the directory of an environment would be."""
    python = tmp_path / "project" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert installed(RuntimePython(python=str(python))) is None
    assert [path.name for path in (tmp_path / "project").iterdir()] == [".venv"]


def test_the_litert_that_is_installed_needs_no_environment():
    from importlib.metadata import version

    assert isolated_target(TargetRuntime()) == RuntimePython()
    here = TargetRuntime(version=version("ai-edge-litert"))
    assert isolated_target(here) == RuntimePython()
    assert installed(RuntimePython()) is None
    assert not (cache_directory() / "runtimes").exists()


def test_an_environment_that_is_there_is_used_at_once_and_without_starting_anything(monkeypatch):
    directory = plant("tflite-runtime-2.12.0-py39")
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    target = isolated_target(parse_target_runtime("tflite-runtime==2.12.0"), said.append)
    expected = str(directory / "venv" / "bin" / "python")
    assert target == RuntimePython(package="tflite_runtime", python=expected)
    assert said == []
    ready = installed(target)
    assert ready.packages == {"numpy": "1.26.4"}
    assert [p.name for p in directory.parent.iterdir()] == [directory.name]


def test_the_environment_of_the_present_python_comes_first():
    version = "{}{}".format(*PRESENT)
    names = [f"litert-2.0.3-py{each}" for each in dict.fromkeys(["39", version, "313"])]
    planted = {name: plant(name) for name in names}
    target = isolated_target(parse_target_runtime("litert==2.0.3"))
    assert Path(target.python).parents[2] == planted[f"litert-2.0.3-py{version}"]


def test_an_environment_that_is_in_use_is_not_pruned():
    directory, unused = plant("litert-2.0.3-py39"), plant("litert-2.1.0-py39")
    assert isolated_target(parse_target_runtime("litert==2.0.3"))
    prune_environments(cache_directory(), 0, grace_seconds=-60)
    assert (directory.is_dir(), unused.is_dir()) == (True, False)


def test_what_did_not_run_is_not_installed_again_on_the_same_day(monkeypatch):
    attempts = []

    def unusable(environment, *_, downloads):
        attempts.append(environment.directory.name)
        raise RuntimeUnusable("it cannot run a model")

    monkeypatch.setattr(isolated, "_make", unusable)
    runtime = parse_target_runtime("litert==1.1.0")
    for _ in range(2):
        with fails(RuntimeUnusable):
            isolated_target(runtime)
    assert len(attempts) == 1
    (note,) = (cache_directory() / "runtimes").glob("*.unusable")
    day_before = time.time() - 90_000
    os.utime(note, (day_before, day_before))
    with pytest.raises(RuntimeUnusable):
        isolated_target(runtime)
    assert len(attempts) == 2


def test_where_no_python_fits_it_is_said_what_is_needed(tmp_path, monkeypatch):
    """One on the PATH may be a shim without a Python."""
    kind = isolated._KINDS["tflite-runtime"]._replace(pythons=((3, 7), (3, 6)))
    monkeypatch.setitem(isolated._KINDS, "tflite-runtime", kind)
    shim = tmp_path / "python3.7"
    shim.write_text("#!/bin/sh\necho 'python3.7: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(UsageError, match=r"needs a CPython .* 3\.7, 3\.6; none") as caught:
        isolated_target(parse_target_runtime("tflite-runtime"))
    assert "python3.7, or use the runtime litert" in caught.value.hint
    assert not list((cache_directory() / "runtimes").glob("*/"))


def test_uv_has_the_settings_of_pip(tmp_path, monkeypatch):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nextra-index-url = https://a/simple\n  https://b/simple\nno-index = false\n"
        "timeout = 3\n[install]\nfind-links = /one\n  /two\n[download]\nproxy = http://c\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TIMEOUT", "5")
    options, variables = isolated._settings_of_pip(tmp_path)
    assert options == []
    wanted = {
        "UV_EXTRA_INDEX_URL": "https://a/simple https://b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_HTTP_TIMEOUT": "5",
        "UV_FIND_LINKS": "/one,/two",
    }
    assert {name: variables.get(name) for name in wanted} == wanted
    assert "ALL_PROXY" not in variables
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert isolated._settings_of_pip(tmp_path)[0] == ["--no-index"]


@needs_wheels
def test_a_cache_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "file"))
    with fails(OutputRefused):
        isolated_target(parse_target_runtime("tflite-runtime"))


def test_the_model_it_tries_a_runtime_with_is_a_relu():
    (y,) = run(relu_model(), np.array([[-1.5, 4.0]], np.float32))
    assert y.tolist() == [[0.0, 4.0]]


def test_the_runner_is_python_3_9():
    tree = ast.parse(RUNNER.read_text(encoding="utf-8"), feature_version=(3, 9))
    assert {"serve", "quantize"} <= {node.name for node in tree.body if hasattr(node, "name")}
