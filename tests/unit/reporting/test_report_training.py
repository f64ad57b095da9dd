"""What is said of trainings: of the baseline's, and of one for quantisation."""

import math
import re
from typing import Any

import pytest
import report_example as example
from golden_files import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from wording import says

from edgeconv.reporting.closeness import difference_lines
from edgeconv.reporting.columns import model_rows
from edgeconv.reporting.drawing import draw_svg
from edgeconv.reporting.facts import epoch_table, metric, qat_facts, strategy_line, training_facts
from edgeconv.reporting.html import render_html
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.plots import metric_plots
from edgeconv.types import Epoch, Qat, QatRecord, TrainingRecord

HOSTILE = "<b>[red]\x1b[31m"
LOGGED = st.dictionaries(
    st.sampled_from(["loss", "accuracy", "f1"]), st.floats(width=32), max_size=3
)


def changed(**changes: Any) -> TrainingRecord:
    return replace(example.training(), **changes)


def of_epochs(*metrics: dict[str, float], validation: dict[str, float] | None = None) -> Any:
    return changed(
        epochs=tuple(
            Epoch(metrics=m, validation=validation or {}, samples=10, seconds=0.5) for m in metrics
        )
    )


def said(record: TrainingRecord) -> dict[str, str]:
    return {fact.label: fact.text for fact in training_facts(record)}


def qat(**changes: Any) -> QatRecord:
    return replace(example.qat(), **changes)


def facts_of(record: QatRecord) -> dict[str, str]:
    return {fact.label: fact.text for fact in qat_facts(record)}


@pytest.mark.parametrize(("width", "name"), [(None, "wide"), (80, "80"), (40, "40")])
def test_the_training_looks_as_it_did(width, name):
    assert_golden(f"training_{name}.txt", text_of(example.training(), width=width) + "\n")


@pytest.mark.parametrize("width", [16, 24, 40, 80])
def test_no_line_is_wider_than_asked(width):
    text = text_of(example.training(), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    letters = re.sub(r"\s", "", text_of(example.training()))
    for path in ("/models/digits_cnn/1.keras", "reduction-to-one", "0.9778"):
        assert path in letters
        assert path in re.sub(r"\s", "", text)


def test_a_metric_that_was_not_logged_in_every_epoch_is_a_gap_there():
    table = epoch_table(of_epochs({"loss": 1.0}, {"loss": 0.5, "f1": 0.25}))
    assert [each.heading for each in table.columns] == ["epoch", "loss", "f1", "samples/s", "time"]
    assert [row.cells[2].text for row in table.rows] == ["–", "0.2500"]


def test_metrics_of_any_size_are_written_in_little_room():
    written = [metric(v) for v in (0.96875, -1.5, 0.0, 12345.678, math.nan, -math.inf, None)]
    assert written == ["0.9688", "−1.5000", "0.0000", "12346", "NaN", "−∞", "–"]


def test_the_strategy_comes_with_its_processes_and_devices():
    assert strategy_line(changed(devices=(), cross_device_ops="auto")) == (
        "MirroredStrategy, 2 replicas"
    )
    cluster = changed(strategy="MultiWorkerMirroredStrategy", workers=2, cross_device_ops="")
    says(strategy_line(cluster))
    assert strategy_line(changed(replicas=1, devices=())).startswith("MirroredStrategy, 1 replica,")


def test_what_did_not_happen_is_not_mentioned():
    plain = changed(
        best_epoch=0, stopped="", resumed_at=(), test_metrics={}, validation_samples=0, tools={},
        keras_file="",
    )  # fmt: skip
    absent = {"kept", "stopped", "resumed", "test", "versions", "Keras file"}
    assert not absent & set(said(plain))
    assert absent <= set(said(example.training()))
    assert said(plain)["samples"] == "1293 to train"
    says(said(plain)["time"])
    says(said(example.training())["time"])


def test_the_page_speaks_of_a_dashed_line_only_where_there_is_one():
    alone = changed(validation_samples=0, best_epoch=0)
    page = render_html(replace(example.report(), training=alone, artifacts=()))
    assert "On the training samples, during each epoch.</p>" in page
    assert "Dashed: on" not in page
    assert "Dashed: on the validation samples, after it. The large points are" in render_html(
        example.report()
    )


def test_a_training_that_was_taken_up_twice_says_where():
    assert said(changed(resumed_at=(40, 61)))["resumed"] == "at steps 40, 61"


def test_every_metric_has_a_picture_with_its_curves():
    plots = dict(metric_plots(example.training()))
    assert list(plots) == ["loss", "accuracy"]
    for name, plot in plots.items():
        logged = [
            ("training", n, e.metrics[name]) for n, e in enumerate(example.training().epochs, 1)
        ] + [
            ("validation", n, e.validation[name])
            for n, e in enumerate(example.training().epochs, 1)
        ]
        shown = [(v["series"], v["number"], v["value"]) for v in plot.data["values"]]
        assert shown == logged
        large = [(dot["series"], dot["number"]) for dot in plot.data["dots"] if dot["size"] > 50]
        assert large == [("training", 3), ("validation", 3)]
        assert len(plot.data["dots"]) == 8
        svg = str(draw_svg(plot, "k"))
        assert re.findall(">(training|validation)</text>", svg) == ["training", "validation"]
    says(plots["accuracy"].description)


def test_a_missing_number_breaks_the_curve_and_draws_nothing_false():
    record = of_epochs(*({"loss": v} for v in (3.0, math.nan, 2.0, 1.0)))
    ((name, plot),) = metric_plots(record)
    assert name == "loss"
    assert [value["value"] for value in plot.data["values"]] == [3.0, None, 2.0, 1.0]
    svg = str(draw_svg(plot, "k"))
    (path,) = re.findall('mark-line role-mark.*? d="([^"]*)"', svg)
    assert re.sub("[^MLZ]", "", path) == "MZML"
    assert re.findall(">(training|validation)</text>", svg) == ["training"]
    assert metric_plots(of_epochs({"loss": math.inf})) == []
    assert metric_plots(changed(epochs=())) == metric_plots(None) == []


@given(st.lists(st.tuples(LOGGED, LOGGED), max_size=40), st.integers(0, 40))
def test_whatever_was_logged_can_be_drawn_and_written(logged, best):
    epochs = tuple(Epoch(metrics=m, validation=v, samples=1, seconds=0.0) for m, v in logged)
    record = changed(epochs=epochs, best_epoch=min(best, len(epochs)))
    for _, plot in metric_plots(record):
        values = [value["value"] for value in plot.data["values"]]
        assert all(v is None or abs(v) < 1e12 for v in values)
        assert len(values) in (len(logged), 2 * len(logged))
    assert len(epoch_table(record).rows) == len(logged)
    assert text_of(record, width=60)


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 500])
def test_an_axis_of_epochs_has_whole_numbers_only(epochs):
    ((_, plot),) = metric_plots(of_epochs(*({"loss": 1 / n} for n in range(1, epochs + 1))))
    svg = str(draw_svg(plot, "k"))
    ticks = re.findall(r">([^<]+)</text>", svg.split("role-axis-label")[1].split("</g>")[0])
    assert all(1 <= int(tick) <= epochs for tick in ticks)
    assert len(ticks) == len(set(ticks)) >= min(epochs, 2)


def test_a_long_training_is_a_line_without_points():
    record = of_epochs(*({"loss": 1 / n} for n in range(1, 101)))
    ((_, plot),) = metric_plots(changed(epochs=record.epochs, best_epoch=99))
    assert [dot["number"] for dot in plot.data["dots"]] == [99]


def test_the_facts_of_quantisation_aware_training_are_those_of_its_record():
    facts = facts_of(example.qat())
    says(facts["cost"])
    says(facts["samples"])
    says(facts["trained on for"])
    says(facts["stopped"])
    says(facts["layers"])
    says(facts["started from"])
    says(facts_of(qat(rebuilt=False))["started from"])
    assert "loss" not in facts
    losses = {"kind": "sparse_categorical_crossentropy", "box": "huber"}
    text = "sparse_categorical_crossentropy of kind, huber of box"
    assert facts_of(qat(losses=losses))["loss"] == text
    after = {n: Qat(freeze_batch_norm_after=n) for n in (None, 0, 1, 2)}
    says([facts_of(qat(settings=s))["batch normalization"] for s in after.values()])


def test_the_time_of_training_is_in_the_rows_of_a_report_with_any():
    whole = example.report()
    others = tuple(a for a in whole.artifacts if a.recipe.name != "qat")
    untrained = replace(whole, artifacts=others)
    assert [text for row in model_rows(whole) if (text := row.text("training")) != "–"] == [
        ">18.4 s",
        "41.2 s",
    ]
    assert "training" not in text_of(untrained).splitlines()[4]


def test_the_cost_of_a_training_that_was_not_resumed_is_its_wall_time():
    report = replace(example.report(), training=changed(resumed_at=()))
    assert model_rows(report)[0].text("training") == "26.9 s"


def test_a_gain_and_a_loss_beyond_chance_are_told_apart():
    def line(difference: float, low: float, high: float) -> str:
        comparison = replace(example.comparison(), difference=difference, interval=(low, high))
        report = replace(example.report(), comparisons=(comparison,))
        return difference_lines(report)[-1].removeprefix("digits_cnn-qat against digits_cnn-int8: ")

    says(line(0.024, 0.011, 0.037))
    assert line(-0.024, -0.037, -0.011).startswith("−2.40 points [−3.70, −1.10]")
    assert line(-0.024, -0.037, -0.011).endswith("worse beyond chance")
    assert line(0.0, 0.0, 0.01).endswith("within chance")
    better = replace(example.measurement("int8"), accuracy_drop_interval=(-0.02, -0.01))
    report = replace(example.report(), measurements=(better,), comparisons=())
    says(difference_lines(report))


def test_without_accuracies_nothing_is_said_of_differences():
    report = replace(
        example.report(), measurements=(example.without_accuracy("dynamic"),), comparisons=()
    )
    assert difference_lines(report) == []
    assert "interval" not in text_of(report)
