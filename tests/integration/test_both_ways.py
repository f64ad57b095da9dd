"""Every verb, called in Python without click and as a command: they are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forking import edgeconv_command
from places import SUPPORT
from tiny_tflite import BIASES, WEIGHTS, float_model, packed

import edgeconv
from edgeconv.requests.table import VERBS

pytestmark = pytest.mark.slow

CONFIG = """\
[model.net]
source = "net.tflite"
[model.net.embed]
target = "c"
out = "built"
[convert]
to = "int8"
calibration = "cal.npz"
[bench]
data = "test.npz?labels=y"
rounds = 1
warmup = 1
repeats = 3
warmup-seconds = 0.01
seconds = 0.01
[budget]
max-size-bytes = 100_000
max-accuracy-drop = 0.5
"""
SWEEP = """\
models = ["net.tflite"]
recipes = ["float32", "int8"]
[data.test]
source = "test.npz?labels=y"
calibration = "cal.npz"
"""
QUICK = ["--rounds", "1", "--repeats", "3", "--seconds", "0.01", "--warmup-seconds", "0.01"]
# As in Python below; each is called in a directory of its own, after those above it.
COMMANDS = {
    "inspect": ["net.tflite"],
    "scan": ["net.tflite"],
    "convert": ["net.tflite", "--to", "int8", "--calibration", "cal.npz", "--io", "int8"],
    "bench": ["net.tflites", "--data", "test.npz?labels=y", *QUICK, "-o", "measured"],
    "report": ["measured/report.json", "--title", "again", "--format", "json"],
    "compare": ["measured/report.json", "measured/report.json"],
    # Before `check`, whose time it shows.
    "verify": ["net.tflites", "--source", "net.tflite", "--require", "manifest"],
    "check": ["--confidence", "0.9"],
    "build": [],
    "embed": ["net.tflites", "--target", "python", "-o", "embedded", "--vectors", "3"],
    "debug": ["net.tflite", "--calibration", "cal.npz", "--to", "int8"],
    "doctor": ["net.tflite", "test.npz?labels=y"],
    "tune": [
        *("net.tflite", "--data", "test.npz?labels=y", "--max-drop", "0.2"),
        *("--to", "dynamic", "--trials", "1"),
    ],
    "sweep": ["sweep.toml", "--jobs", "1"],
    "train": ["digits_cnn", "--strategy", "none", "--epochs", "1"],
}
PYTHON = """
import sys
sys.modules["click"] = None
import msgspec
import edgeconv
import edgeconv.embedding.build, edgeconv.gate.check
import edgeconv.gate.pytest_plugin, edgeconv.plugins.scale.tune
from forking import forked_children

calls = {
    "inspect": lambda: edgeconv.inspect("net.tflite"),
    "scan": lambda: [edgeconv.scan("net.tflite")],
    "convert": lambda: edgeconv.convert(
        "net.tflite", to=["int8"], calibration="cal.npz", io="int8"
    ),
    "bench": lambda: edgeconv.bench(
        ["net.tflites"],
        data="test.npz?labels=y",
        rounds=1,
        repeats=3,
        seconds=0.01,
        warmup_seconds=0.01,
        out="measured",
    ),
    "report": lambda: edgeconv.report("measured/report.json", title="again")[0],
    "compare": lambda: edgeconv.compare("measured/report.json", "measured/report.json"),
    "verify": lambda: edgeconv.verify(
        "net.tflites", source="net.tflite", require=["manifest"]
    ),
    "check": lambda: edgeconv.check(confidence=0.9),
    "build": lambda: edgeconv.build(threads=1),
    "embed": lambda: edgeconv.embed("net.tflites", "python", "embedded", vectors=3),
    "debug": lambda: edgeconv.debug("net.tflite", "cal.npz", to="int8"),
    "doctor": lambda: edgeconv.doctor("net.tflite", "test.npz?labels=y"),
    "tune": lambda: edgeconv.tune(
        "net.tflite", "test.npz?labels=y", 0.2, to="dynamic", trials=1
    ),
    "sweep": lambda: edgeconv.sweep("sweep.toml", jobs=1),
    "train": lambda: edgeconv.train("digits_cnn", epochs=1, strategy="none"),
}
with forked_children():
    done = {name: call() for name, call in calls.items()}
sys.stdout.buffer.write(msgspec.json.encode(done))
"""


def write_project(directory: Path) -> None:
    directory.mkdir()
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 4)).astype(np.float32)
    labels = (x @ WEIGHTS.T.astype(np.float32) + BIASES).argmax(axis=1)
    model = packed(float_model(signature=("serving_default", ["x"], ["y"])))
    (directory / "net.tflite").write_bytes(model)
    np.savez(directory / "test.npz", x=x, y=labels)
    np.savez(directory / "cal.npz", x=x[:64])
    (directory / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    (directory / "sweep.toml").write_text(SWEEP, encoding="utf-8")


@pytest.fixture(scope="module")
def in_python(tmp_path_factory, micro_cache) -> dict[str, Any]:
    """What each verb gives in Python, as JSON."""
    directory = tmp_path_factory.mktemp("python") / "project"
    write_project(directory)
    command = [sys.executable, "-c", PYTHON]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "EDGECONV_CACHE_DIR": str(micro_cache)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def as_commands(tmp_path_factory, micro_cache) -> dict[str, Any]:
    """What each command prints as JSON."""
    directory = tmp_path_factory.mktemp("commands") / "project"
    write_project(directory)
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(micro_cache)}
    found = {}
    for name, words in COMMANDS.items():
        as_json = [] if name == "report" else ["--json"]
        command = [*edgeconv_command(), name, *words, *as_json]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stderr.decode()}"
        found[name] = json.loads(done.stdout)
    return found


# What differs from run to run: times, and what is made of them; and where it was.
CHANGES = {
    *("load_us", "first_us", "samples_us", "latency", "batch_latencies", "memory_bytes", "rounds"),
    *(
        "throughput",
        "log",
        "conditions",
        "notes",
        "seconds",
        "choosing_s",
        "wall_seconds",
        "command",
        "epochs",
    ),
    *("peak_memory_bytes", "comparisons", "environment", "sha256", "key", "training", "summary"),
    *("saved_model", "keras_file", "source_path", "config", "directory", "path", "model", "source"),
    *("outputs", "inputs", "reused", "is_new", "artifacts", "verdict_sha256"),
}


def steady(value: Any) -> Any:
    """A result without what differs from run to run."""
    if isinstance(value, dict):
        return {key: steady(each) for key, each in value.items() if key not in CHANGES}
    return [steady(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_gives_what_its_command_gives(name, in_python, as_commands):
    ours, theirs = steady(in_python[name]), steady(as_commands[name])
    assert ours == theirs
    assert ours, "something is compared"


def test_every_file_that_a_verb_makes_is_the_commands(in_python, as_commands):
    made = [found["convert"]["artifacts"][0]["sha256"] for found in (in_python, as_commands)]
    assert made[0] == made[1]
    limits = [
        found["check"]["checks"][0]["verdict"]["findings"] for found in (in_python, as_commands)
    ]
    assert limits[0] == limits[1]
    assert len(limits[0]) == 2


def test_every_verb_is_called_both_ways():
    assert set(COMMANDS) == set(VERBS) - {"demo", "visualize"}
    assert set(COMMANDS) | {"load", "qat"} == set(edgeconv.__all__)
