"""The whole search with real conversions, run by LiteRT: no TensorFlow is needed."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from commands import captured
from forking import edgeconv_command
from started import starts
from tune_models import SENSITIVE_INPUTS, fine_directions, samples, sensitive_first, two_layers

from edgeconv.cli import run
from edgeconv.system.store import read_noun, sha256_file
from edgeconv.types import Tuning


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tune")
    two_layers(directory / "net.tflite")
    samples(directory / "data.npz", directory / "net.tflite", 400)
    return directory


def edgeconv(place: Path, *words: str) -> Done:
    command = [*edgeconv_command(), *words]
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(place / "cache")}
    done = captured(command, cwd=place, env=environment)
    return Done(done.returncode, done.stdout, done.stderr)


def tune(place: Path, out: str, *words: str) -> tuple[Done, Tuning]:
    data = () if "--data" in words else ("--data", "data.npz")
    done = edgeconv(place, "tune", "net.tflite", *data, "-o", out, *words)
    return done, read_noun(place / out / "net.tuning.json", Tuning, what="tuning")


@pytest.fixture(scope="module")
def tuned(place) -> tuple[Done, Tuning]:
    return tune(place, "out", "--max-drop", "0.05", "--to", "int8,float16")


def test_the_recommended_artifact_is_published_and_within_the_budget(place, tuned):
    done, tuning = tuned
    assert done.code == 0, done.err
    assert tuning.recommended == "int8"
    assert (tuning.search, tuning.fresh) == (200, 200)
    assert tuning.confirmations[-1].is_met
    assert tuning.confirmations[-1].loss.drop <= 0.05
    file = place / "out" / tuning.artifact
    assert sha256_file(file) == tuning.trial("int8").sha256
    assert file.with_suffix(".json").is_file()
    assert "Recommended is int8" in done.out
    assert "best so far: int8" in done.err
    # Nothing is left of the work.
    assert not list((place / "out").glob(".net.tuning/*"))


def test_what_a_search_left_that_was_killed_once_it_was_done_goes_with_the_next(place, tuned):
    left = place / "out" / ".net.tuning"
    (left / "trials").mkdir(parents=True)
    done, tuning = tune(place, "out", "--max-drop", "0.05", "--to", "int8,float16")
    assert (done.code, tuning) == (0, tuned[1])
    assert not left.exists()


def test_the_recipe_file_makes_the_same_bytes(place, tuned):
    _, tuning = tuned
    done = edgeconv(
        place, "convert", "net.tflite", "--config", f"out/{tuning.recipe_file}", "-o", "again"
    )
    assert done.code == 0, done.err
    assert (place / "again" / tuning.artifact).read_bytes() == (
        place / "out" / tuning.artifact
    ).read_bytes()


def test_what_it_says_makes_the_file_again_where_the_samples_are_elsewhere(place):
    samples(place / "train.npz", place / "net.tflite", 60, seed=10)
    words = ("--calibration", "train.npz", "--max-drop", "0.05", "--to", "int8")
    done, tuning = tune(place, "own", *words)
    said = next(line for line in done.out.splitlines() if "again: edgeconv" in line)
    again = edgeconv(place, *shlex.split(said)[2:])
    assert again.code == 0, again.err
    made, kept = (place / folder / tuning.artifact for folder in ("OUT", "own"))
    assert made.read_bytes() == kept.read_bytes()


def test_the_samples_that_calibrate_are_none_of_the_fresh_ones(place, tuned):
    with np.load(place / "out" / "net.calibration.npz") as archive:
        calibrating = {row.tobytes() for row in archive["x"]}
    assert len(calibrating) == 200
    with np.load(place / "data.npz") as archive:
        assert len({row.tobytes() for row in archive["x"]} - calibrating) == 200


def test_the_same_question_is_answered_without_making_or_running_a_model(place, tuned, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))
    words = ("--data", "data.npz", "-o", "out", "--max-drop", "0.05", "--to", "int8,float16")
    with starts() as started:
        assert run(["tune", "net.tflite", *words]) == 0
    assert read_noun(place / "out" / "net.tuning.json", Tuning, what="tuning") == tuned[1]
    assert [text for text in started if "quantize" in text or "runner" in text] == []


def test_a_file_that_loses_too_much_becomes_the_best_with_one_layer_in_8_bits(tmp_path):
    net = sensitive_first(tmp_path / "net.tflite")
    samples(tmp_path / "data.npz", net, 400, scale=SENSITIVE_INPUTS)
    done, tuning = tune(
        tmp_path, "out", "--max-drop", "0.05", "--to", "weight-only-int4,weight-only-int8"
    )
    assert done.code == 0, done.err + done.out
    first = tuning.trials[0]
    assert not first.refused
    assert first.loss.drop > 0.2
    best = tuning.trial(tuning.recommended)
    assert best.recipe.name == "weight-only-int4"
    assert {rule.pattern: rule.precision for rule in best.recipe.layers} == {"one/dense": "int8"}
    assert tuning.confirmations[-1].loss.drop <= 0.05
    larger = [trial for trial in tuning.trials if trial.recipe.name == "weight-only-int8"]
    assert best.size_bytes < min(trial.size_bytes for trial in larger)
    # What lost too much is nowhere.
    assert [file.name for file in (tmp_path / "out").glob("**/*.tflite")] == [tuning.artifact]
    assert first.sha256 != sha256_file(tmp_path / "out" / tuning.artifact)


@pytest.mark.slow
def test_a_budget_that_nothing_meets_is_no_success_and_names_the_closest(tmp_path):
    net = fine_directions(tmp_path / "net.tflite")
    samples(tmp_path / "data.npz", net, 400)
    done, tuning = tune(tmp_path, "none", "--max-drop", "0", "--to", "int8x4", "--samples", "200")
    assert done.code == 1
    assert not tuning.ok
    assert tuning.closest
    assert "No trial is within the budget of 0" in done.out
    assert not list((tmp_path / "none").glob("*.tflite"))


@pytest.mark.slow
def test_without_labels_the_agreement_is_tuned_and_that_is_said(place):
    source = samples(place / "plain.npz", place / "net.tflite", 120, labels=False)
    words = ("--data", source, "--max-drop", "0.2", "--to", "float16", "--json")
    done, tuning = tune(place, "agreed", *words)
    assert done.code == 0, done.err
    assert tuning.on_agreement
    assert tuning.metric == "agreement"
    assert tuning.float_loss[0].value == 1.0
    assert any("no labels" in note for note in tuning.notes)
    assert json.loads(done.out)["recommended"] == "float16"


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_with_the_trials_it_has(place):
    command = [sys.executable, "-m", "edgeconv", "tune", "net.tflite", "--data", "data.npz"]
    command += ["-o", "killed", "--max-drop", "0.0001", "--to", "int8,float16", "--json"]
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(place / "cache")}
    with subprocess.Popen(
        command,
        cwd=place,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("trial 1:"):
                process.send_signal(signal.SIGKILL)
                break
    (kept,) = (place / "killed").glob(".net.tuning/*/trials/*.json")
    before = kept.stat().st_mtime_ns, json.loads(kept.read_bytes())
    done, tuning = tune(
        place, "killed", "--max-drop", "0.0001", "--to", "int8,float16", "--time-limit-s", "300"
    )
    assert done.code in (0, 1), done.err
    assert tuning.trials[0].seconds == before[1]["seconds"]
    assert tuning.trials[0].sha256 == before[1]["sha256"]
    assert not any(line.startswith("int8: quantizing") for line in done.err.splitlines())


@pytest.mark.slow
def test_two_searches_into_one_directory_take_turns_and_give_one_answer(place):
    command = [sys.executable, "-m", "edgeconv", "tune", "net.tflite", "--data", "data.npz"]
    command += ["-o", "both", "--max-drop", "0.05", "--to", "int8", "--json"]
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(place / "cache")}
    both = [
        subprocess.Popen(
            command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert sum(b"waiting for another search" in err for _, err in said) == 1


@pytest.mark.slow
def test_when_the_time_is_up_the_best_so_far_counts_only_if_it_is_confirmed(place):
    words = ("--max-drop", "0.05", "--to", "int8,float16", "--time-limit-s", "0.01")
    done, tuning = tune(place, "late", *words)
    assert tuning.stopped == "time"
    assert done.code == (0 if tuning.recommended else 1)
    assert len(tuning.trials) <= 1
    assert bool(tuning.recommended) == any(one.is_met for one in tuning.confirmations)


@pytest.mark.slow
def test_the_last_trial_ends_it_as_well(place):
    words = ("--max-drop", "0.0001", "--to", "int8,float16", "--trials", "1")
    _, tuning = tune(place, "one", *words)
    assert tuning.stopped == "trials"
    assert len(tuning.trials) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-drop", "2"), "--max-drop 2 is no budget"),
        (("--max-drop", "0.1", "--calibration", "data.npz"), "--calibration names the same"),
        (("--max-drop", "0.1", "--calibration", "npz:./data.npz?x=x"), "are among the fresh"),
        (("--max-drop", "0.1", "--samples", "10"), "10 samples; a search"),
        (("--max-drop", "0.1", "--metric", "detection_agreement"), "a search needs an accuracy"),
    ],
)
def test_what_cannot_be_ends_with_a_reason(place, words, said):
    done = edgeconv(place, "tune", "net.tflite", "--data", "data.npz", "-o", "bad", *words)
    assert done.code in (2, 3)
    assert said in done.err
    assert "Traceback" not in done.err
