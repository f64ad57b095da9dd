"""bench in one runtime and another, with one metric and another, and what goes wrong there."""

import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import fails

from edgeconv import bench, plugins
from edgeconv.reporting.html import render_html
from edgeconv.reporting.pages import text_of
from edgeconv.runtimes.choice import parse_choice
from edgeconv.runtimes.kinds.fake import Fake
from edgeconv.types import Execution, Measurement, Measuring, Report, RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

SERVING = ("serving_default", ["x"], ["y"])
RNG = np.random.default_rng(5)
X = RNG.uniform(-4, 4, (40, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 40)
QUICK = {"rounds": 1, "timing": Timing(warmup=1, warmup_seconds=0, repeats=5)}


@pytest.fixture
def models(tmp_path) -> Path:
    """A directory with a float and an int8 model."""
    (tmp_path / "models").mkdir()
    for name, make in (("float", float_model), ("int8", int8_model)):
        content = packed(make(signature=SERVING))
        (tmp_path / "models" / f"{name}.tflite").write_bytes(content)
    return tmp_path / "models"


def measured(models: Path, labels: Any = None, **options: Any) -> Report:
    """A report on X, with these labels."""
    source = models.parent / "data.npz"
    np.savez(source, x=X) if labels is None else np.savez(source, x=X, labels=labels)
    others = {n: options.pop(n) for n in ("baseline", "execution", "command") if n in options}
    measuring = Measuring(**{**QUICK, **options})
    return bench([models], data=str(source), measuring=measuring, **others)


def accuracies(row: Measurement) -> dict[str, float]:
    found = [one for one in (row.accuracy, *row.metrics) if one is not None]
    return {one.metric: one.value for one in found}


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("litert", RuntimeChoice(name="litert")),
        ("tflite-runtime==2.14.0", RuntimeChoice(name="tflite-runtime", version="2.14.0")),
        ("ssh:user@host:2222", RuntimeChoice(name="ssh", location="user@host:2222")),
        (
            "tfserving:http://host:8501/m",
            RuntimeChoice(name="tfserving", location="http://host:8501/m"),
        ),
        ("ssh:a?config==b", RuntimeChoice(name="ssh", location="a", options={"config": "=b"})),
    ],
)
def test_a_runtime_is_read_from_its_text_and_back(text, choice):
    assert parse_choice(text) == choice
    assert str(choice) == text


@pytest.mark.parametrize(
    ("runtimes", "options", "message"),
    [
        (("litrt",), {}, "did you mean 'litert'"),
        (("litert==",), {}, "nothing after =="),
        (("litert==new",), {}, "no version after =="),
        (("litert:there",), {}, "cannot take 'there'"),
        (("tensorflow==2.15.1", "tfserving:localhost"), {}, "no trained model is known"),
        (("litert", "fake"), {}, "are different machines"),
        (("litert==2.1.0",), {"python": sys.executable}, "gets its own environment"),
        (("tflite-runtime",), {"accelerator": "compiled"}, "has no CompiledModel"),
    ],
)
def test_a_runtime_that_cannot_be_is_refused(runtimes, options, message, models):
    if message == "no trained model is known":
        runtimes = runtimes[1:]
    with fails(UsageError):
        measured(models, runtimes=runtimes, **options)


def test_a_runtime_that_is_not_installed_says_what_to_do(models):
    pytest.importorskip("ai_edge_litert")
    if "tflite_runtime" in sys.modules:
        pytest.skip("tflite_runtime is installed here")
    with fails(ToolFailed):
        measured(models, runtimes=("tflite-runtime",))


@pytest.mark.parametrize("runtime", ["litert", "tflite-runtime"])
def test_a_python_without_numpy_is_named_with_what_to_install(models, tmp_path, runtime):
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with fails(ToolFailed):
        measured(models, runtimes=(runtime,), python=python)


def test_the_compiled_model_gives_the_accuracy_of_the_interpreter(models):
    plain, compiled = (measured(models, LABELS, accelerator=a) for a in ("interpreter", "compiled"))
    for one, other in zip(plain.measurements, compiled.measurements, strict=True):
        assert (one.error, other.error) == ("", "")
        assert one.accuracy == other.accuracy


def test_the_report_says_what_was_measured_where_and_how(models):
    report = measured(models, LABELS, rounds=2)
    assert report.labels == tuple(LABELS)
    assert report.command[:3] == ("edgeconv", "bench", str(models))
    assert report.command[report.command.index("--rounds") + 1] == "2"
    assert report.conditions is not None
    assert report.environment.host == ""
    for row in report.measurements:
        assert len(row.latency.warmup) == 2
        assert row.arena_bytes
        assert row.oldest_runtime


def test_a_baseline_that_is_a_tflite_is_what_the_others_agree_with(models):
    report = measured(models, LABELS, baseline=models / "float.tflite")
    assert report.baseline.latency is not None
    floating, integer = report.measurements
    (same,), (other,) = floating.agreement, integer.agreement
    assert (same.flips, same.cosine, same.max_error, same.reference) == (0, 1.0, 0.0, "baseline")
    assert other.max_error > 0
    assert other.samples == 40


def test_outputs_agree_with_nothing_where_there_is_neither_baseline_nor_float32(models):
    assert all(row.agreement == () for row in measured(models).measurements)


def test_several_runtimes_have_a_row_each_for_every_model(models, monkeypatch):
    monkeypatch.setitem(plugins.RUNTIMES, "other", plugins.RUNTIMES["litert"])
    rows = measured(models, LABELS, runtimes=("litert", "other")).measurements
    names = [f"{model} in {place}" for place in ("litert", "other") for model in ("float", "int8")]
    assert [row.name for row in rows] == names
    assert rows[0].accuracy == rows[2].accuracy


def test_a_device_that_disappears_keeps_what_was_measured(models):
    report = measured(models, LABELS, runtimes=("fake:gone=3",), rounds=2)
    first, second = report.measurements
    # The second round begins with the other model.
    assert "device is gone" in first.error
    assert second.error == ""
    for row, rounds in ((first, 1), (second, 2)):
        assert len(row.latency.rounds_us) == rounds
    assert (first.accuracy is None, second.accuracy is None) == (True, False)
    assert report.conditions is None


def test_a_runtime_without_outputs_has_no_accuracy_and_says_so(models, monkeypatch):
    monkeypatch.setattr(Fake, "sessions", 0)
    report = measured(models, LABELS, runtimes=("fake",))
    assert "fake gives no outputs: there is no accuracy and no agreement" in report.notes
    for row in report.measurements:
        assert (row.error, row.accuracy, row.agreement) == ("", None, ())
        assert row.latency is not None
    assert report.data.sha256 == measured(models, LABELS).data.sha256


def crashing(place: Path, file: str) -> Path:
    """A Python in which running that file ends the process, as a bad kernel does."""
    script = place / "python"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, runpy, sys\n"
        "was = json.loads\n"
        "def loads(text, **options):\n"
        "    said = was(text, **options)\n"
        f"    if said.get('model', '').endswith({file!r}):\n"
        "        os.kill(os.getpid(), 11)\n"
        "    return said\n"
        "json.loads = loads\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    script.chmod(0o755)
    return script


def test_a_model_that_crashes_its_process_has_its_error_and_the_rest_goes_on(models):
    python = crashing(models.parent, "int8.tflite")
    report = measured(models, LABELS, python=str(python))
    well, crashed = report.measurements
    assert well.error == ""
    assert well.accuracy is not None
    assert "was ended by SIGSEGV" in crashed.error
    assert (crashed.latency, crashed.accuracy) == (None, None)


# Metrics


def test_several_metrics_are_measured_at_once(models):
    report = measured(models, LABELS, metrics=("f1", "top1", "auc"))
    for row in report.measurements:
        assert list(accuracies(row)) == ["f1", "top1", "auc"]


def regression(place: Path) -> None:
    """A model that gives twice its input."""
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    graph.operator("ADD", [x, x], [y])
    for file in place.iterdir():
        file.unlink()
    (place / "twice.tflite").write_bytes(packed(graph.model([x], [y], signature=SERVING)))


def test_labels_may_be_numbers(models):
    regression(models)
    baseline = models / "twice.tflite"
    (row,) = measured(models, 2 * X + 0.5, metrics=("mae", "mse"), baseline=baseline).measurements
    assert accuracies(row) == {"mae": pytest.approx(0.5), "mse": pytest.approx(0.25)}
    assert (row.accuracy_drop, row.accuracy_drop_interval) == (0.0, (0.0, 0.0))
    assert (row.fixed, row.broken) == (None, None)
    with fails(InputRefused):
        measured(models, 2 * X[:, 0] + 0.5)


OWN = """
import numpy as np

def distance(outputs, labels):
    return np.abs(outputs["y"] - labels).max(axis=1)

distance.higher_is_better = False

def halves(outputs, labels):
    values = np.ones(len(labels))
    values[7] = np.nan
    return values

def short(outputs, labels):
    return [1.0]

def square(outputs, labels):
    return outputs["y"]

def broken(outputs, labels):
    return outputs["z"]
"""


@pytest.fixture
def own(models, monkeypatch) -> Path:
    """The models, in a directory that has a module with metrics."""
    monkeypatch.chdir(models.parent)
    Path("own.py").write_text(OWN)
    regression(models)
    return models


def with_own(models: Path, name: str, **options: Any) -> Report:
    execution = Execution(allow_code=True)
    return measured(models, 2 * X + 0.5, metrics=(f"own:{name}",), execution=execution, **options)


def test_a_metric_may_be_a_users_own_function(own):
    (row,) = with_own(own, "distance").measurements
    assert (row.accuracy.metric, row.accuracy.higher_is_better) == ("own:distance", False)
    assert row.accuracy.value == pytest.approx(0.5)
    assert len(row.accuracy.per_sample) == 40


def test_a_metric_that_gives_nan_is_the_error_of_that_model(own):
    (row,) = with_own(own, "halves").measurements
    assert "the metric own:halves gives nan for sample 7" in row.error
    assert row.latency is not None
    with fails(ToolFailed):
        with_own(own, "halves", baseline=own / "twice.tflite")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("short", InputRefused),
        ("square", InputRefused),
        ("broken", InputRefused),
        ("distanc", UsageError),
    ],
)
def test_a_metric_of_a_users_that_is_wrong_says_where(own, name, kind):
    with fails(kind):
        with_own(own, name)


def test_metrics_and_labels_that_do_not_go_together_are_refused(models):
    with fails(InputRefused):
        measured(models, metrics=("mae",))
    with fails(InputRefused):
        measured(models, LABELS + 5 * (LABELS == 2))
    with fails(InputRefused):
        measured(models, X[:, :2], metrics=("mae",))
    with fails(InputRefused):
        measured(models, LABELS.astype(np.float32), metrics=("mae",))
    made_up = bench([models], measuring=Measuring(**QUICK))
    assert "the samples are made up" in [note.partition(":")[0] for note in made_up.notes]
    with fails(UsageError):
        measured(models, LABELS, metrics=("topp1",))


def test_an_empty_set_is_refused(models):
    source = models.parent / "empty.npz"
    np.savez(source, x=X[:0], labels=LABELS[:0])
    with fails(InputRefused):
        bench([models], data=str(source), measuring=Measuring(**QUICK))


def test_where_nothing_needs_times_every_model_runs_once_and_is_not_timed(models, monkeypatch):
    asked: list[Timing] = []
    time = Fake.time

    def counted(self: Fake, model: Any, inputs: Any, timing: Timing) -> Any:
        asked.append(timing)
        return time(self, model, inputs, timing)

    monkeypatch.setattr(Fake, "time", counted)
    report = measured(models, LABELS, rounds=3, runtimes=("fake",), is_timed=False)
    assert [(one.repeats, one.warmup_seconds) for one in asked] == [(1, 0.0), (1, 0.0)]
    for row in report.measurements:
        assert (row.latency, row.peak_memory_bytes, row.latency_ratio) == (None, None, None)
        assert row.runtime == "fake 1"
        assert row.accuracy is not None
        assert row.size_bytes
    assert "latency and memory: not measured: no limit needs them" in report.notes
    assert "p50" not in text_of(report)
    assert "not measured: no limit needs them" in render_html(report)
