"""Labels under the names of outputs: what is measured of each, and how one is chosen."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_tflite import WEIGHTS, Graph, packed
from wording import fails

import edgeconv
from edgeconv.measure.bench import with_baseline
from edgeconv.measure.compare import compare_reports
from edgeconv.measure.metrics.scoring import (
    Scorer,
    labels_of_one,
    metrics_of,
    usual_metric,
)
from edgeconv.reporting.html import render_html
from edgeconv.reporting.spreadsheet import render_csv
from edgeconv.types import MAE, TOP1, Measuring, Report, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

X = np.random.default_rng(5).normal(size=(60, 4)).astype(np.float32)
SCORES = X @ WEIGHTS.T.astype(np.float32)
KIND, AGE = SCORES.argmax(axis=1), X[:, 0] * 3 + 5
BY_OUTPUT = {"age": AGE + 0.5, "kind": KIND}
ONCE = Measuring(rounds=1, is_timed=False)
BOTH = [("kind", "top1"), ("age", "mae")]


@pytest.fixture
def two(tmp_path):
    """A model of two outputs: the scores of three classes, and 3 x + 5 of the first value x."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    outputs = []
    for name, weights, bias in (
        ("age", np.array([[3, 0, 0, 0]]), [5]),
        ("kind", WEIGHTS, [0, 0, 0]),
    ):
        w = graph.tensor(f"{name}_w", weights.shape, "float32", data=weights.astype(np.float32))
        b = graph.tensor(f"{name}_b", (len(bias),), "float32", data=np.array(bias, np.float32))
        outputs.append(graph.tensor(name, (1, len(bias)), "float32", dynamic=True))
        graph.operator("FULLY_CONNECTED", [x, w, b], [outputs[-1]])
    model = graph.model([x], outputs, signature=("serving_default", ["x"], ["age", "kind"]))
    (tmp_path / "two.tflite").write_bytes(packed(model))
    return tmp_path / "two.tflite"


def bench(model, labels, **options) -> Report:
    return edgeconv.bench([model], data=(X, labels), measuring=ONCE, **options)


def measured(report: Report) -> list[tuple[str, str]]:
    (row,) = report.measurements
    return [(each.output, each.metric) for each in (row.accuracy, *row.metrics)]


def test_each_output_with_labels_has_its_metric_and_classes_come_first(two, tmp_path):
    report = bench(two, BY_OUTPUT)
    (row,) = report.measurements
    assert measured(report) == BOTH
    assert (row.accuracy.value, row.accuracy.samples) == (1.0, 60)
    assert row.metrics[0].value == pytest.approx(0.5, rel=1e-5)
    assert report.labels == tuple(KIND.tolist())
    np.savez(tmp_path / "d.npz", x=X, **BY_OUTPUT)
    again = edgeconv.bench([two], data=str(tmp_path / "d.npz"), measuring=ONCE)
    assert measured(again) == BOTH


def test_a_trained_model_may_call_its_only_output_otherwise():
    metrics = metrics_of([TOP1], allow_code=False)
    scorer = Scorer(None, metrics, {"output_0": KIND}, {"output_0": TOP1})
    (accuracy,) = scorer.accuracies({"digit": SCORES}, None)
    assert (accuracy.value, accuracy.output) == (1.0, "")
    with pytest.raises(UsageError):
        scorer.accuracies({"digit": SCORES, "other": SCORES}, None)


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_one_hot_labels_are_classes(two, dtype):
    report = bench(two, {"age": AGE, "kind": np.eye(3, dtype=dtype)[KIND]})
    assert (measured(report), report.labels) == (BOTH, tuple(KIND.tolist()))
    assert report.measurements[0].accuracy.value == 1.0
    chosen = bench(two, {"kind": np.eye(3, dtype=dtype)[KIND]}, metric=["top1", "auc", "f1"])
    (row,) = chosen.measurements
    assert [each.value for each in (row.accuracy, *row.metrics)] == [1.0, 1.0, 1.0]
    lone = TensorSpec(name="p", dtype="float32", shape=(-1, 1))
    assert usual_metric("d", lone, np.array([0, 1, 1], dtype), are_named=True) == TOP1


def alone(directory: Path, weights: np.ndarray, bias: list[int]) -> Path:
    """A model of one output, W x + b."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    w = graph.tensor("w", weights.shape, "float32", data=weights.astype(np.float32))
    b = graph.tensor("b", (len(bias),), "float32", data=np.array(bias, np.float32))
    y = graph.tensor("y", (1, len(bias)), "float32", dynamic=True)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y])
    path = directory / "alone.tflite"
    path.write_bytes(packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))))
    return path


@pytest.mark.parametrize("place", ["memory", "npz", "csv"])
def test_floats_are_measured_as_numbers_and_those_of_a_classifier_as_classes(place, tmp_path):
    """From a file as from memory: what decides is the output."""

    def metric(weights: np.ndarray, bias: list[int], labels: np.ndarray, **options) -> str:
        data = (X, labels)
        if place == "npz":
            np.savez(tmp_path / "d.npz", x=X, labels=labels)
        if place == "csv":
            lines = [",".join(map(repr, map(float, row))) for row in np.column_stack([X, labels])]
            (tmp_path / "d.csv").write_text("\n".join(["a,b,c,d,labels", *lines]))
        source = data if place == "memory" else f"{tmp_path}/d.{place}?labels=labels"
        model = alone(tmp_path, weights, bias)
        report = edgeconv.bench([model], data=source, measuring=ONCE, **options)
        return report.measurements[0].accuracy.metric

    number, classes = (np.array([[3, 0, 0, 0]]), [5]), (WEIGHTS, [0, 0, 0])
    assert metric(*number, AGE + 0.5) == "mae"
    assert metric(*number, AGE + 0.5, metric="mse") == "mse"
    assert metric(*classes, KIND.astype(np.float64)) == "top1"
    assert metric(*number, (X[:, 0] > 0).astype(np.float32)) == "top1"
    if place != "csv":
        assert metric(*number, np.rint(AGE)) == "mae"
    with fails(InputRefused):
        metric(*classes, AGE + 0.5)


def test_whole_numbers_are_classes_only_where_an_output_has_them(two):
    by_output = {"age": np.rint(AGE).astype(int)[:, None], "kind": KIND[:, None]}
    assert measured(bench(two, by_output)) == BOTH
    lone = TensorSpec(name="p", dtype="float32", shape=(-1, 1))
    assert usual_metric("d", lone, np.array([0, 1, 1]), are_named=True) == TOP1
    # As classes that are counted from 1 are, of which the metric says so.
    assert usual_metric("d", lone, np.array([1, 2, 1]), are_named=True) == TOP1
    assert usual_metric("d", lone, np.array([20, 35]), are_named=True) == MAE
    assert usual_metric("d", lone, np.array([20, 35]), are_named=False) == TOP1


def test_batches_and_samples_one_by_one_have_labels_by_output_too(two):
    batches = ((X[i : i + 20], {n: a[i : i + 20] for n, a in BY_OUTPUT.items()}) for i in (0, 20))
    report = edgeconv.bench([two], data=batches, measuring=ONCE)
    assert (measured(report), report.data.samples) == (BOTH, 40)
    single = [(X[i], {n: a[i] for n, a in BY_OUTPUT.items()}) for i in range(3)]
    report = edgeconv.bench([two], data=iter(single), measuring=ONCE)
    assert (measured(report), report.data.samples) == (BOTH, 3)


def test_a_table_of_pandas_has_labels_by_output_too(two):
    pandas = pytest.importorskip("pandas")
    by_output = {name: pandas.Series(array) for name, array in BY_OUTPUT.items()}
    report = edgeconv.bench([two], data=(pandas.DataFrame(X), by_output), measuring=ONCE)
    assert (measured(report), report.data.source) == (BOTH, "data (DataFrame)")


def test_the_only_output_with_labels_is_measured_or_the_one_that_is_chosen(two):
    assert measured(bench(two, {"age": AGE})) == [("", "mae")]
    chosen = bench(two, BY_OUTPUT, output="kind")
    assert (measured(chosen), chosen.labels) == ([("", "top1")], tuple(KIND.tolist()))
    for output in ("kind", "kinds"):
        with fails(UsageError):
            bench(two, {"age": AGE}, output=output)


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": np.ones((60, 3), int), "age": AGE},
        {"kind": KIND + 1, "age": AGE},
        {"kind": KIND[:5], "age": AGE},
        {"kind": KIND, "age": np.stack([AGE, AGE], axis=1)},
        {"kinds": KIND, "age": AGE},
        {"color": KIND},
        {1: KIND},
        [KIND, AGE],
    ],
)
def test_labels_that_do_not_fit_are_refused_by_the_name_of_the_output(two, bad):
    with fails(InputRefused):
        bench(two, bad)


def test_metrics_that_are_named_are_of_the_outputs_that_they_fit(two):
    assert measured(bench(two, BY_OUTPUT, metric=["mae", "top1"])) == [*reversed(BOTH)]
    report = bench(two, BY_OUTPUT, metric=["top1", "mae", "mse"])
    assert measured(report) == [*BOTH, ("age", "mse")]
    with fails(InputRefused):
        bench(two, BY_OUTPUT, metric="top1")


def test_a_metric_of_the_users_gets_the_labels_by_output(two, tmp_path, monkeypatch):
    text = "def off(outputs, labels):\n    return abs(outputs['age'][:, 0] - labels['age'])\n"
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    report = bench(two, BY_OUTPUT, metric="own:off", allow_code=True)
    assert report.measurements[0].accuracy.value == pytest.approx(0.5, rel=1e-5)


def test_each_metric_has_its_drop_in_every_report(two):
    report = bench(two, BY_OUTPUT)
    (row,) = report.measurements
    worse = bench(two, {"kind": KIND, "age": AGE + 0.75}).measurements[0]
    dropped = with_baseline(worse, row, [worse])
    assert dropped.accuracy_drop == 0
    (age,) = dropped.metrics
    assert age.drop == pytest.approx(0.25, rel=1e-5)
    assert age.drop_interval[0] <= age.drop <= age.drop_interval[1]
    shown = replace(report, baseline=row, measurements=(dropped,))
    assert "age mae ↓ 0.7500 drop 0.250" in str(shown)
    assert "drop 0.250" in render_html(shown)
    headings, _, line = (each.split(",") for each in render_csv(shown).splitlines()[:3])
    assert float(line[headings.index("age mae ↓ drop")]) == age.drop
    assert line[headings.index("metric")] == "kind top1"
    (compared,) = compare_reports(report, shown).models
    changes = {each.quantity: (each.before, each.after) for each in compared.numbers}
    assert changes["metric:age mae"] == pytest.approx((0.5, 0.75), rel=1e-5)


def test_a_check_and_a_search_take_one_of_several_outputs(two):
    with fails(UsageError):
        edgeconv.check(bench(two, BY_OUTPUT), budget={"max_size_bytes": 10_000})
    assert edgeconv.check(bench(two, BY_OUTPUT, output="age"), budget={"max_size_bytes": 10_000}).ok
    labels = np.array([(1, 2.5), (0, 3.5)], [("kind", int), ("age", float)])
    with fails(UsageError):
        labels_of_one(labels, ("kind", "age"), None)
    of_age, output = labels_of_one(labels, ("kind", "age"), "age")
    assert (of_age.tolist(), output) == ([2.5, 3.5], "age")
    assert labels_of_one(labels[["kind"]], ("kind", "age"), None)[1] == "kind"
    assert labels_of_one(None, ("kind", "age"), None) == (None, None)
