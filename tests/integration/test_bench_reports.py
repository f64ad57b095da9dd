"""train, convert, bench, report, compare and visualize one after the other, as a user runs them."""

import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from edgeconv.models import digits_cnn
from forking import edgeconv_command

from edgeconv.reporting.files import read_report
from edgeconv.types import Difference, Report

Done = subprocess.CompletedProcess[str]
TESTED = 200
QUICK = ("--rounds", 2, "--repeats", 20, "--seconds", 0.2, "-q")


class User:
    """Someone in a directory of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, *arguments: object, path: str = os.environ["PATH"]) -> Done:
        variables = {"EDGECONV_CACHE_DIR": str(self.place / "cache"), "NO_COLOR": "1", "PATH": path}
        command = [*edgeconv_command(), *map(str, arguments)]
        return subprocess.run(
            command,
            cwd=self.place,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def does(self, *arguments: object) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> User:
    """A user with a trained model in export/, two formats of it, and labeled samples."""
    user = User(tmp_path_factory.mktemp("user"))
    data = digits_cnn.data()
    x, y = data.x_test["image"], data.y_test
    np.savez(user.place / "train.npz", image=data.x_train["image"])
    np.savez(user.place / "test.npz", image=x[:TESTED], labels=y[:TESTED])
    np.savez(user.place / "other.npz", image=x[TESTED:], labels=y[TESTED:])
    user.does("train", "digits_cnn", "-o", "export", "--epochs", 3, "-q")
    formats = ("--to", "float32,int8", "--calibration", "train.npz")
    user.does("convert", "export/digits_cnn", "-o", "out", *formats, "-q")
    return user


@pytest.fixture(scope="module")
def measured(user) -> str:
    """What `bench` printed; the report is in report/."""
    return user.does("bench", "out", "--data", "test.npz", "-o", "report", "--layers", *QUICK)


@pytest.fixture(scope="module")
def report(user, measured) -> Report:
    assert measured
    return read_report(user.place / "report" / "report.json")


def test_bench_prints_a_table_and_where_the_report_is(user, measured, report):
    lines = measured.splitlines()
    for name in ("baseline", "float32", "int8"):
        assert any(line.startswith(name) for line in lines), measured
    for name in ("report.json", "report.html"):
        assert f"report: {user.place / 'report' / name}" in lines
    assert report.baseline.accuracy.value > 0.8
    assert [len(row.latency.rounds_us) for row in report.measurements if row.latency] == [2, 2]
    assert report.measurements[1].layer_errors
    assert len(report.training.epochs) == 3
    assert report.data.samples == TESTED


def test_every_format_of_the_report_has_every_model(user, report):
    formats = [f"--format={name}" for name in ("html", "markdown", "csv", "json", "text")]
    said = user.does("report", "report/report.json", *formats, "-o", "shown")
    files = {path.suffix: path for path in (user.place / "shown").iterdir()}
    assert sorted(files) == [".csv", ".html", ".json", ".md", ".txt"]
    assert all(str(path) in said for path in files.values())
    page = files[".html"].read_text()
    assert "<script>" in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert read_report(files[".json"]) == report
    rows = list(csv.DictReader(io.StringIO(files[".csv"].read_text())))
    names = ["baseline", "float32", "int8"]
    assert [row["model"] for row in rows] == names
    for suffix in (".html", ".md", ".txt"):
        assert all(name in files[suffix].read_text() for name in names)
    drop = report.measurements[1].accuracy_drop
    assert float(rows[2]["drop"]) == pytest.approx(drop)


def test_limits_are_shown_in_the_report_and_the_exit_code_is_left_to_check(user, report):
    assert report.verdict is None
    (user.place / "strict.toml").write_text("[budget.recipe.int8]\nmax-size-bytes = 10\n")
    limits = ("report/report.json", "--config", "strict.toml")
    assert "FAIL  int8" in user.does("report", *limits)
    assert user.run("check", *limits).returncode == 1


def test_two_reports_of_the_same_samples_are_compared_and_those_of_others_are_not(user, report):
    assert report.measurements
    user.does("bench", "out", "--data", "test.npz", "-o", "again", *QUICK)
    user.does("bench", "out", "--data", "other.npz", "-o", "other", *QUICK)
    pair = ("report/report.json", "again/report.json")
    again = msgspec.json.decode(user.does("compare", *pair, "--json"), type=Difference)
    assert again.refused == ()
    assert all(model.same_file and model.flips == () for model in again.models)
    quantities = {number.quantity for model in again.models for number in model.numbers}
    assert "latency_p50_us" in quantities
    assert "size_bytes" not in quantities
    shown = user.does("compare", "report/report.json", "other/report.json")
    assert "hash of the samples" in shown
    refused = user.run("report", "report/report.json", "other/report.json")
    assert refused.returncode == 3
    assert "cannot be compared" in refused.stderr
    assert "--side-by-side" in refused.stderr
    both = user.does("report", "report/report.json", "other/report.json", "--side-by-side")
    assert both.count("int8") >= 2


def test_two_files_are_compared_by_their_operators_and_tensors(user):
    said = user.does("compare", "out/digits_cnn.float32.tflite", "out/digits_cnn.int8.tflite")
    for what in ("size", "QUANTIZE", "DEQUANTIZE"):
        assert what in said


def test_the_errors_of_the_layers_become_node_data(user, report):
    model = "out/digits_cnn.int8.tflite"
    said = user.does("visualize", model, "--report", "report/report.json", "-o", "layers.json")
    assert "layers.json" in said
    data: dict[str, Any] = json.loads((user.place / "layers.json").read_bytes())
    (graph,) = data.values()
    layers = {error.layer for error in report.measurements[1].layer_errors}
    assert len(graph["results"]) == len(layers)
    unmeasured = user.run("visualize", model, "--report", "again/report.json", "-o", "no.json")
    assert unmeasured.returncode == 3
    assert "--layers" in unmeasured.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("netron") is not None
    or importlib.util.find_spec("model_explorer") is not None,
    reason="a viewer is installed, and would open",
)
def test_without_a_viewer_visualize_says_how_to_install_one(user):
    directories = os.environ["PATH"].split(os.pathsep)
    bare = os.pathsep.join(d for d in directories if not shutil.which("netron", path=d))
    done = user.run("visualize", "out/digits_cnn.int8.tflite", path=bare)
    assert done.returncode == 2
    assert "pip install ai-edge-model-explorer" in done.stderr
