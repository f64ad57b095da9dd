"""Every command that loads a model refuses one that the scan refuses, before anything loads it."""

import json
from pathlib import Path

import numpy as np
import pytest
from graph_files import constant, graph, initializer, meta_graph, node, write
from test_keras_files import LAMBDA, archive, model_of
from tiny_tflite import float_model, packed

import edgeconv
from edgeconv.cli import run
from edgeconv.system.processes import tasks
from edgeconv.system.store.user import read_user_config, user_configuration
from edgeconv.types.errors import InputRefused, UsageError

CONFIG = """
[budget]
max-size-bytes = 1
[model.m]
source = "hostile"
[model.m.convert]
to = "float32"
[model.m.bench]
baseline = "hostile"
[model.m.embed]
target = "cmake"
out = "app"
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with a hostile model, a good file, samples and a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    nodes = (constant("name", str(tmp_path / "written")), constant("text", "x"))
    written = node("write", "WriteFile", "name", "text")
    top = graph(*nodes, written, node("init", "NoOp", "^write"))
    write(tmp_path / "hostile", meta_graph(top, initializer("init")))
    (tmp_path / "fine.tflite").write_bytes(packed(float_model()))
    np.savez(tmp_path / "x.npz", x=np.ones((8, 4), np.float32), labels=np.zeros(8, np.int64))
    Path("edgeconv.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def no_child(monkeypatch):
    def start(*words: object, **_: object) -> None:
        raise AssertionError(f"a child was started: {words}")

    monkeypatch.setattr(tasks, "Child", start)


COMMANDS = {
    "convert": ["convert", "hostile", "--to", "float32", "-o", "out"],
    "debug": ["debug", "hostile", "--to", "int8", "--calibration", "x.npz"],
    "tune": ["tune", "hostile", "--data", "x.npz", "--max-drop", "0.1", "-o", "tuned"],
    "doctor": ["doctor", "hostile", "x.npz"],
    "bench": ["bench", "fine.tflite", "--baseline", "hostile"],
    "check": ["check"],
    "build": ["build"],
}


@pytest.mark.usefixtures("no_child")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_refuses_a_hostile_saved_model(words, place, capsys):
    assert run(words) == 3
    assert "operator WriteFile: writes a file that the graph names" in capsys.readouterr().err
    assert not (place / "written").exists()


@pytest.mark.usefixtures("place", "no_child")
def test_bench_refuses_a_file_of_twenty_thousand_subgraphs(capsys):
    model = float_model()
    model.subgraphs *= 2000
    Path("many.tflite").write_bytes(packed(model))
    assert run(["bench", "many.tflite"]) == 3
    assert "2000 subgraphs" in capsys.readouterr().err
    assert run(["inspect", "many.tflite"]) == 3


@pytest.mark.usefixtures("place")
def test_a_keras_file_that_calls_is_refused_by_its_scan_and_no_other_child(capsys):
    archive(Path("m.keras"), model_of(LAMBDA), metadata="2.15.0")
    assert run(["convert", "m.keras", "--to", "float32", "-o", "out"]) == 3
    said = capsys.readouterr().err
    assert "m.keras has a Lambda layer: loading it would run code" in said
    # Keras is told not to run it in any case.
    assert "--trust-model" not in said


@pytest.mark.usefixtures("place")
def test_trust_is_of_one_content(capsys):
    """Then it goes on, and fails for want of a signature, which is after the scan."""
    sha256 = edgeconv.scan("hostile").sha256
    assert run([*COMMANDS["convert"], "--trust-model", "0" * 64]) == 3
    assert f"--trust-model {sha256}" in capsys.readouterr().err
    assert run([*COMMANDS["convert"], "--trust-model", "0" * 64, "--trust-model", sha256]) == 3
    assert "has no signature to convert" in capsys.readouterr().err
    assert run(["check", "--trust-model", sha256]) == 3
    assert "has no signature to convert" in "".join(capsys.readouterr())
    assert run(["build", "--trust-model", sha256]) == 3
    assert "has no signature to convert" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("text", ["", "all", "0" * 63, "G" * 64, "*"])
def test_there_is_no_trust_in_all_models(text, capsys):
    assert run([*COMMANDS["convert"], "--trust-model", text]) == 2
    assert "is not a sha256" in capsys.readouterr().err


@pytest.mark.usefixtures("place")
def test_the_users_own_configuration_trusts_and_no_projects_does(capsys):
    sha256 = edgeconv.scan("hostile").sha256
    for table in ('[convert]\ntrust-model = ["{}"]\n', 'trusted = ["{}"]\n'):
        Path("edgeconv.toml").write_text(table.format(sha256))
        assert run(COMMANDS["convert"]) == 2
    Path("edgeconv.toml").unlink()
    capsys.readouterr()
    user_configuration().parent.mkdir(parents=True)
    user_configuration().write_text(f"trusted = {json.dumps([sha256])}\n")
    assert run(COMMANDS["convert"]) == 3
    assert "has no signature to convert" in capsys.readouterr().err


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("text", ["trusted = 1", 'trusted = ["*"]', "trusted = [", "trusted = [1]"])
def test_a_users_configuration_that_is_wrong_says_so(text):
    user_configuration().parent.mkdir(parents=True)
    user_configuration().write_text(text)
    with pytest.raises(UsageError, match=r"config\.toml"):
        read_user_config()


@pytest.mark.usefixtures("place")
def test_the_api_refuses_and_trusts_alike():
    with pytest.raises(InputRefused, match="WriteFile"):
        edgeconv.convert("hostile", out="out", to=["float32"])
    trusting = edgeconv.Execution(trusted=(edgeconv.scan("hostile").sha256,))
    with pytest.raises(InputRefused, match="no signature"):
        edgeconv.convert("hostile", out="out", to=["float32"], execution=trusting)
