from __future__ import annotations

import ast
import os
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from environments import plant
from tiny_tflite import run

from edgeconv.runtimes import environments, isolated
from edgeconv.runtimes.choice import parse_target_runtime, recorded_target
from edgeconv.runtimes.environments import interpreters
from edgeconv.runtimes.isolated import installed, isolated_target, relu_model
from edgeconv.runtimes.local import RUNNER, RuntimePython
from edgeconv.system.store import cache_directory
from edgeconv.system.store.pruning import prune_environments
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


def test_a_misspelt_name_is_refused_with_the_right_one():
    with pytest.raises(UsageError, match="unknown target runtime 'tflite_runtime'") as caught:
        parse_target_runtime("tflite_runtime==2.14.0")
    assert caught.value.hint.startswith("did you mean 'tflite-runtime'?")


@pytest.mark.parametrize("text", ["litert==", "litert==2", "litert==2.x", "litert==2.1.0 --pre"])
def test_a_bad_version_is_refused(text):
    with pytest.raises(UsageError, match="has no version after ==") as caught:
        parse_target_runtime(text)
    assert "litert" in caught.value.hint


@pytest.mark.parametrize("text", ["litert>=2.0", "litert=2.0", ""])
def test_another_grammar_is_refused(text):
    with pytest.raises(UsageError, match="unknown target runtime"):
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
    assert ready is not None
    assert ready.packages == {"numpy": "1.26.4"}
    assert [p.name for p in directory.parent.iterdir()] == [directory.name]


def test_an_environment_without_its_base_is_not_complete():
    base = plant("base-numpy-py39")
    directory = plant("tflite-runtime-2.12.0-py39", base="base-numpy-py39")
    ready = environments.ready(directory)
    assert ready is not None
    assert ready.base == base.name
    # The base was used after what needs it, so it is not pruned before.
    assert (base / "ready.json").stat().st_mtime >= (directory / "ready.json").stat().st_mtime
    (base / "venv" / "bin" / "python").write_text("changed")
    assert environments.ready(directory) is None


def test_an_environment_that_is_in_use_is_not_pruned():
    base, directory = plant("base-numpy-py39"), plant("litert-2.0.3-py39", base="base-numpy-py39")
    unused = plant("litert-2.1.0-py39", base="base-numpy-py39")
    assert environments.ready(directory)
    prune_environments(cache_directory(), 0, grace_seconds=-60)
    assert (base.is_dir(), directory.is_dir(), unused.is_dir()) == (True, True, False)


def test_what_did_not_run_is_not_installed_again_on_the_same_day(monkeypatch):
    attempts = []

    def unusable(environment, *_):
        attempts.append(environment.directory.name)
        raise RuntimeUnusable("it cannot run a model")

    monkeypatch.setattr(isolated, "_make", unusable)
    runtime = parse_target_runtime("litert==1.1.0")
    for _ in range(2):
        with pytest.raises(RuntimeUnusable, match="it cannot run a model"):
            isolated_target(runtime)
    assert len(attempts) == 1
    (note,) = (cache_directory() / "runtimes").glob("*.unusable")
    day_before = time.time() - 90_000
    os.utime(note, (day_before, day_before))
    with pytest.raises(RuntimeUnusable):
        isolated_target(runtime)
    assert len(attempts) == 2


def script(path: Path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_python_is_only_one_that_runs_and_is_what_its_name_says(tmp_path, monkeypatch):
    shims, liars, real = (tmp_path / name for name in ("shims", "liars", "real"))
    for directory in (shims, liars, real):
        directory.mkdir()
    script(shims / "python3.7", "echo 'python3.7: command not found' >&2\nexit 127\n")
    script(liars / "python3.7", f'exec {sys.executable} "$@"\n')
    (real / "python3.7").write_text("not executable")
    monkeypatch.setenv("PATH", f"{shims}:{liars}:{real}:/usr/bin:/bin")
    assert list(interpreters([(3, 7)])) == []
    # One that says what a 3.7 would say is found behind the two that do not work.
    script(real / "python3.7", "echo 'edgeconv cpython 3 7 True'\n")
    assert list(interpreters([(3, 7)])) == [(str(real / "python3.7"), (3, 7))]


def test_the_present_python_comes_first():
    found = next(interpreters([(3, 7), PRESENT]))
    assert found == (sys.executable, PRESENT)


def test_where_no_python_fits_it_is_said_what_is_needed(monkeypatch):
    kind = isolated._KINDS["tflite-runtime"]._replace(pythons=((3, 7), (3, 6)))
    monkeypatch.setitem(isolated._KINDS, "tflite-runtime", kind)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"needs a 64-bit CPython .* one of 3\.7, 3\.6") as caught:
        isolated_target(parse_target_runtime("tflite-runtime"))
    assert "litert" in caught.value.hint


@needs_wheels
def test_a_cache_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(OutputRefused, match="cannot create") as caught:
        isolated_target(parse_target_runtime("tflite-runtime"))
    assert "EDGECONV_CACHE_DIR" in caught.value.hint


def test_the_model_it_tries_a_runtime_with_is_a_relu():
    (y,) = run(relu_model(), np.array([[-1.5, 4.0]], np.float32))
    assert y.tolist() == [[0.0, 4.0]]


def test_the_runner_is_python_3_9():
    tree = ast.parse(RUNNER.read_text(encoding="utf-8"), feature_version=(3, 9))
    assert {"serve", "quantize"} <= {node.name for node in tree.body if hasattr(node, "name")}
