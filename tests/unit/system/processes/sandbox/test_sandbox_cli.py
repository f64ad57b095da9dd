"""`--sandbox` and `sandbox = ...`, as a user or a project says it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from click.testing import CliRunner
from commands import captured
from places import SUPPORT

from edgeconv.cli import cli, command_named
from edgeconv.system.processes.sandbox import policy

CONFINES = policy.available().is_whole
NO_LANDLOCK = [sys.executable, str(SUPPORT / "without_landlock.py")]
# Those that start no process to read anything.
WITHOUT = {"cmake-dir", "cache", "config", "report", "compare", "visualize", "verify"}


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    """A Keras file, which a child reads."""
    monkeypatch.chdir(tmp_path)
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": []}}
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.15.0"
        file.create_group("model_weights")
    return tmp_path / "model.h5"


def scan(
    model: Path, *options: str, start: list[str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [*(start or []), sys.executable, "-m", "edgeconv", "scan", str(model), *options]
    return captured(command, env={**os.environ, **variables})


@pytest.mark.parametrize("name", sorted(set(cli.list_commands(None)) - WITHOUT))
def test_every_command_that_starts_children_has_the_option(name):
    if name not in WITHOUT:
        assert "--sandbox" in {text for each in command_named(name).params for text in each.opts}


@pytest.mark.skipif(not CONFINES, reason=f"no complete sandbox: {policy.available()}")
@pytest.mark.parametrize("options", [(), ("--sandbox", "auto"), ("--sandbox", "required")])
def test_a_sandbox_that_is_there_is_not_spoken_of(options, model):
    done = scan(model, *options)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_a_sandbox_is_required_and_there_is_none_the_exit_code_is_4(model):
    done = scan(model, "--sandbox", "required", start=NO_LANDLOCK, PATH="/nowhere")
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == (
        "error: there is no complete sandbox here: the kernel has no Landlock, and there is no "
        "bubblewrap"
    )
    assert "next: " in done.stderr


def test_where_there_is_none_and_none_is_required_that_is_said_and_the_scan_stands(model):
    done = scan(model, start=NO_LANDLOCK, PATH="/nowhere")
    assert done.returncode == 0
    assert done.stderr.count("no complete sandbox here") == 1


def test_off_is_said(model):
    done = scan(model, "--sandbox", "off")
    assert done.returncode == 0
    assert done.stderr == "--sandbox off: models and data are read without a sandbox\n"


def test_a_mode_that_does_not_exist_is_refused(model):
    done = scan(model, "--sandbox", "none")
    assert done.returncode == 2
    assert "'none' is not one of 'auto', 'required', 'off'" in done.stderr


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_project_takes_no_sandbox_away(mode, model):
    Path("edgeconv.toml").write_text(f'[inspect]\nsandbox = "{mode}"\n')
    done = CliRunner().invoke(cli, ["inspect", str(model)])
    assert done.exit_code != 0
    assert f"a configuration cannot set the sandbox to '{mode}'" in str(done.exception)
    assert "edgeconv.toml, line 2" in str(done.exception)


def test_a_project_can_require_one(model):
    Path("edgeconv.toml").write_text('[inspect]\nsandbox = "required"\n')
    command = [*NO_LANDLOCK, sys.executable, "-m", "edgeconv", "inspect", str(model)]
    done = captured(command, env={**os.environ, "PATH": "/nowhere"})
    assert done.returncode == 4
    assert "there is no complete sandbox here" in done.stderr


def test_the_users_own_configuration_says_what_holds_where_nobody_says_it(model, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(model.parent))
    settings = model.parent / "edgeconv" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('sandbox = "required"\n')
    done = scan(model, start=NO_LANDLOCK, PATH="/nowhere")
    assert (done.returncode, "there is no complete sandbox here" in done.stderr) == (4, True)
    assert scan(model, "--sandbox", "auto", start=NO_LANDLOCK, PATH="/nowhere").returncode == 0
    settings.write_text('sandbox = "never"\n')
    done = scan(model)
    assert done.returncode == 2
    assert "config.toml, line 1: sandbox is not auto, required or off" in done.stderr


def test_what_is_typed_for_one_command_does_not_hold_for_the_next(model):
    before = policy._mode
    assert CliRunner().invoke(cli, ["scan", str(model), "--sandbox", "off"]).exit_code == 0
    assert policy._mode == before
