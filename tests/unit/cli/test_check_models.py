"""`edgeconv check` on models of a configuration: what is said where, and what is written."""

import json
import os
import socket
import stat
from pathlib import Path
from types import ModuleType

import pytest
from tiny_tflite import float_model, packed
from wording import says

import edgeconv
from edgeconv import plugins
from edgeconv.cli import run
from edgeconv.types.errors import InputRefused, OutputRefused

CONFIG = """\
[model.one]
source = "one.tflite"
[model.one.budget]
max-size-bytes = 100_000
[convert]
to = "float32"
[bench]
rounds = 1
warmup = 1
repeats = 5
warmup-seconds = 0.01
seconds = 0.01
"""
TWO = f'{CONFIG}[model.two]\nsource = "two.tflite"\nbudget.max-size-bytes = 1\n'


@pytest.fixture(autouse=True)
def project(tmp_path, cache, monkeypatch) -> Path:
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        model = float_model(signature=("serving_default", ["x"], ["y"]))
        (tmp_path / f"{name}.tflite").write_bytes(packed(model))
    (tmp_path / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_an_update_says_what_it_accepted(project, capsys):
    assert run(["check", "--update", "-q"]) == 0
    assert capsys.readouterr().err == "accepted: one in edgeconv.lock\n"
    assert (project / "edgeconv.lock").is_file()


def test_an_update_that_accepts_nothing_says_why(project, capsys):
    (project / "edgeconv.toml").write_text(TWO, encoding="utf-8")
    assert run(["check", "--update", "-q"]) == 1
    says(capsys.readouterr().err)
    assert not (project / "edgeconv.lock").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--accept-drop", "one"],
        ["--update", "--accept-drop", "on"],
        ["--update", "--accept-drop", "one:int9"],
    ],
)
def test_a_loss_that_cannot_be_is_not_accepted(project, words, capsys):
    assert run(["check", "-q", *words]) == 2
    says(capsys.readouterr().err)
    assert not (project / "one.tflites").exists()


def test_a_file_cannot_accept_a_loss(project, capsys):
    config = f'{CONFIG}[check]\naccept-drop = ["one"]\n'
    (project / "edgeconv.toml").write_text(config, encoding="utf-8")
    assert run(["check", "-q"]) == 2
    says(capsys.readouterr().err)


def test_a_pipe_is_written_into_and_never_replaced(project):
    pipe = project / "pipe"
    os.mkfifo(pipe)
    # Open for both, so that the writer does not wait for a reader.
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert run(["check", "-q", "--output", f"gitlab-codequality={pipe}"]) == 0
        assert os.read(reader, 100) == b"[]\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_takes_no_text_is_refused_after_the_verdict(capsys):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("here")
        assert run(["check", "-q", "--output", "text=here"]) == OutputRefused.exit_code
    said = capsys.readouterr()
    assert "PASS" in said.out
    says(said.err)
    assert Path("here").is_socket()


def test_an_unknown_tracker_is_refused_before_the_work(project, capsys):
    assert run(["check", "-q", "--track", "cvs:a.csv"]) == 2
    says(capsys.readouterr().err)
    assert not (project / "one.tflites").exists()


def test_a_tracker_that_fails_keeps_no_verdict_back(project, capsys, monkeypatch):
    tracker: ModuleType = plugins.tracker("csv")

    def refuse(*_: object) -> None:
        raise OutputRefused("the server does not answer")

    monkeypatch.setattr(tracker, "track", refuse)
    words = ["check", "-q", "--track", "csv:a.csv", "--output", "junit=j.xml"]
    assert run(words) == OutputRefused.exit_code
    said = capsys.readouterr()
    assert "PASS" in said.out
    says(said.err)
    assert (project / "j.xml").is_file()


def test_a_model_without_recipes_is_told_by_its_name(project, capsys):
    (project / "edgeconv.toml").write_text(CONFIG.replace('to = "float32"', ""), encoding="utf-8")
    assert run(["check", "-q"]) == 2
    said = capsys.readouterr().err
    says(said)
    assert "Usage:" not in said


def test_an_error_says_of_which_of_several_models_it_is(project, capsys):
    (project / "edgeconv.toml").write_text(TWO, encoding="utf-8")
    (project / "two.tflite").write_bytes(b"no model")
    assert run(["check", "-q"]) == 3
    assert capsys.readouterr().err.startswith("error: model 'two': ")


def test_a_model_that_cannot_be_checked_keeps_no_verdict_of_the_others_back(project, capsys):
    (project / "edgeconv.toml").write_text(TWO, encoding="utf-8")
    (project / "two.tflite").unlink()
    assert run(["check", "-q", "--output", "junit=junit.xml"]) == 3
    said = capsys.readouterr()
    assert "PASS one: 1 limit holds; no lock: retraining is not guarded" in said.out
    assert "NOT MEASURED two: 1 of 1 limit not measured" in said.out
    says(said.err)
    assert 'tests="2" failures="0" errors="1"' in (project / "junit.xml").read_text()


def test_where_no_model_can_be_checked_there_is_no_verdict(project, capsys):
    (project / "one.tflite").unlink()
    (project / "junit.xml").write_text('errors="0"', encoding="utf-8")
    assert run(["check", "-q", "--update", "--output", "junit=junit.xml"]) == 3
    assert capsys.readouterr().out == ""
    # What an earlier check wrote does not stay, and the reason is there.
    written = (project / "junit.xml").read_text(encoding="utf-8")
    assert 'tests="1" failures="0" errors="1"' in written
    assert "one.tflite does not exist" in written
    assert not (project / "edgeconv.lock").exists()
    with pytest.raises(InputRefused):
        edgeconv.check(output=["json=verdict.json"])
    verdict = json.loads((project / "verdict.json").read_bytes())
    assert [each["outcome"] for each in verdict["checks"][0]["verdict"]["findings"]] == ["missing"]
