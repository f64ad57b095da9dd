"""What the page says beside the table: flips, layers, profiles, the budget's corner, drops."""

import math
import re
from typing import Any

import msgspec
import pytest
import report_example as example
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.reporting.columns import accuracy_heading, model_rows
from edgeconv.reporting.drawing import Plot, draw_svg
from edgeconv.reporting.facts import (
    agreement_table,
    batched_line,
    command_line,
    condition_facts,
    latency_table,
    models_table,
)
from edgeconv.reporting.html import render_html
from edgeconv.reporting.layers import layer_name, layer_tables, worst_first
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.plots import (
    BudgetRegion,
    Point,
    Worth,
    accuracy_plot,
    drop_plot,
    latency_region,
    layer_plot,
    size_region,
    start_plot,
)
from edgeconv.reporting.sections import flip_tables, flips_of
from edgeconv.reporting.units import drop_value, duration_interval, metric_value
from edgeconv.types import Accuracy, Finding, LayerError, Measurement, Profile, Report, Verdict

NUMBER = st.floats(allow_nan=True, allow_infinity=True)


def changed(**changes: Any) -> Report:
    return msgspec.structs.replace(example.report(), **changes)


def row(**changes: Any) -> Measurement:
    return msgspec.structs.replace(example.measurement("int8"), **changes)


def classes(*predicted: int) -> Measurement:
    return row(accuracy=Accuracy(value=0.5, samples=len(predicted), predicted=predicted))


# Flips


def test_flips_are_told_by_their_effect_and_what_became_wrong_comes_first():
    labels = (0, 0, 1, 1, 2, 2)
    flips = flips_of(classes(0, 3, 1, 4, 1, 1), classes(3, 0, 5, 1, 0, 0), labels)
    assert [(f.effect, f.label, f.before, f.after, f.samples) for f in flips] == [
        ("broken", 0, 0, 3, (1,)),
        ("broken", 1, 1, 4, (3,)),
        ("fixed", 0, 3, 0, (0,)),
        ("fixed", 1, 5, 1, (2,)),
        ("other", 2, 0, 1, (4, 5)),
    ]


def test_without_labels_a_flip_is_neither_right_nor_wrong():
    (flip,) = flips_of(classes(1, 2), classes(1, 3), ())
    assert (flip.effect, flip.label, flip.samples) == ("other", None, (1,))
    report = changed(baseline=classes(1, 3), measurements=(classes(1, 2),), labels=())
    ((_, said, table),) = flip_tables(report)
    assert said == "1 changed"
    assert [cell.text for cell in table.rows[0].cells] == ["–", "three", "two", "changed", "1", "1"]


def test_other_samples_or_no_classes_give_no_flips():
    assert flips_of(classes(1, 2), classes(1, 2, 3), ()) == []
    assert flips_of(row(accuracy=None), classes(1), (1,)) == []
    assert flip_tables(changed(baseline=None)) == []


@given(st.lists(st.tuples(*(st.integers(0, 4),) * 3), max_size=40))
def test_every_changed_sample_is_in_one_flip(samples):
    before = classes(*(was for was, _, _ in samples))
    after = classes(*(now for _, now, _ in samples))
    flips = flips_of(after, before, tuple(label for *_, label in samples))
    indices = sorted(i for flip in flips for i in flip.samples)
    assert indices == [i for i, (was, now, _) in enumerate(samples) if was != now]


# Layers and profiles


def error(layer: str, snr_db: float) -> LayerError:
    return LayerError(
        layer=layer, tensor=layer, operator="ADD", samples=1, snr_db=snr_db, max_error=0.5
    )


def test_the_worst_layers_come_first_and_nan_is_the_worst():
    errors = (error("a", 30.0), error("b", math.nan), error("c", -3.0))
    assert [(place, e.layer) for place, e in worst_first(errors)] == [(2, "b"), (3, "c"), (1, "a")]
    ((name, said, table),) = layer_tables(changed(measurements=(row(layer_errors=errors),)))
    assert (name, said) == ("digits_cnn-int8", "worst: b, NaN")
    assert [line.cells[0].text for line in table.rows] == ["b", "c", "a"]


def test_joined_names_of_a_layer_are_shown_by_the_first():
    assert layer_name("a/Relu;a/BiasAdd;a/Conv2D") == "a/Relu …"
    assert layer_name("") == "–"


@given(st.lists(NUMBER, max_size=200))
def test_any_errors_along_a_graph_can_be_drawn_and_nan_leaves_a_gap(values):
    plot = layer_plot([error(f"l{i}", v) for i, v in enumerate(values)], "m")
    assert (plot is None) == all(math.isnan(v) for v in values)
    if plot:
        draw_svg = [layer["value"] for layer in plot.data["values"]]
        assert draw_svg == [None if math.isnan(v) else min(max(v, -100), 100) for v in values]
        known = [layer["number"] for layer in plot.data["values"] if layer["value"] is not None]
        assert [dot["number"] for dot in plot.data["dots"]] == known * (len(known) <= 120)


def test_a_profile_of_no_time_at_all_is_no_error():
    profile = Profile(total_us=0.0, operators=example.profile(3, "int8").operators)
    page = render_html(changed(measurements=(row(profile=profile),)))
    assert "NaN" not in page.split("<script>")[0]


# The budget's corner of a plot


def judged(*findings: tuple[str, str, float]) -> Report:
    return changed(
        verdict=Verdict(
            findings=tuple(
                Finding(model=model, limit=limit, allowed=allowed, actual=1.0, outcome="passed")
                for model, limit, allowed in findings
            )
        )
    )


def test_limits_of_all_models_make_the_corner_and_the_loosest_counts():
    report = judged(
        ("a", "max-size-bytes", 100.0),
        ("b", "max-size-bytes", 200.0),
        ("a", "max-accuracy-drop", 0.01),
        ("b", "max-accuracy-drop", 0.01),
        ("a", "max-latency-p50-us", 50.0),
    )
    assert size_region(report) == BudgetRegion(most_cost=200.0, least_value=352 / 360 - 0.01)
    assert latency_region(report) == BudgetRegion(least_value=352 / 360 - 0.01)


def test_ratios_are_of_the_baseline_and_of_float32():
    report = judged(
        ("a", "max-size-ratio", 0.5), ("a", "max-latency-ratio", 2.0), ("a", "min-accuracy", 0.9)
    )
    float32 = example.measurement("float32").latency
    assert size_region(report) == BudgetRegion(most_cost=115_502.0, least_value=0.9)
    assert latency_region(report) == BudgetRegion(most_cost=2 * float32.p50_us, least_value=0.9)
    assert not size_region(changed(verdict=None)).is_limited


def by_size(region: BudgetRegion, *points: Point, worth: Worth = Worth()) -> Plot:  # noqa: B008
    plot = accuracy_plot(points, cost="s", unit="bytes", worth=worth, region=region)
    assert plot is not None
    return plot


def test_the_corner_is_drawn_where_it_is_limited():
    points = [Point("int8", 5e4, 0.97, False), Point("big", 2e5, 0.98, False)]
    plot = by_size(BudgetRegion(most_cost=1e5, least_value=0.975), *points)
    (low, _), (_, top) = (plot.axes[axis]["scale"]["domain"] for axis in ("x", "y"))
    corner = {"cost": low, "to_cost": 1e5, "worth": 0.975, "to_worth": top}
    assert plot.data["allowed"] == [corner]
    assert plot.data["limits"] == [{**corner, "cost": 1e5}, {**corner, "to_worth": 0.975}]
    free = by_size(BudgetRegion(), *points)
    assert free.data["allowed"] == free.data["limits"] == []


@given(NUMBER, NUMBER)
def test_any_limit_can_be_drawn(most_cost, least_value):
    points = [Point("a", 5e4, 0.97, False), Point("b", 6e4, 0.9, True)]
    plot = by_size(BudgetRegion(most_cost=most_cost, least_value=least_value), *points)
    (left, right), (bottom, top) = (plot.axes[axis]["scale"]["domain"] for axis in ("x", "y"))
    for corner in (*plot.data["allowed"], *plot.data["limits"]):
        assert left <= corner["cost"] <= corner["to_cost"] <= right
        assert bottom <= corner["worth"] <= corner["to_worth"] <= top
    is_known = not (math.isnan(most_cost) or math.isnan(least_value))
    assert bool(plot.data["allowed"]) == is_known


# Metrics that are no shares


def test_a_metric_where_less_is_better_is_drawn_with_the_best_on_top():
    worth = Worth("mae", is_share=False, higher_is_better=False)
    points = [Point("good", 10.0, 1.5, False, is_best=True), Point("bad", 20.0, 12.0, False)]
    plot = by_size(BudgetRegion(), *points, worth=worth)
    assert plot.axes["y"]["scale"]["reverse"]
    assert plot.axes["y"]["title"] == "↑ mae (less is better)"
    heights = {label["text"]: label["from_y"] for label in plot.data["labels"]}
    assert heights["good"] < heights["bad"]
    centers = re.findall(
        r"<path [^>]*translate\([\d.]+,([\d.]+)\)[^>]*><title>(\w+):", str(draw_svg(plot, "k"))
    )
    assert {name: float(y) for y, name in centers} == pytest.approx(heights, abs=0.01)
    assert [model["kind"] for model in plot.data["models"]] == ["other", "best"]
    assert "good: 10 B, 1.500" in plot.description


def test_an_error_is_no_percentage_anywhere():
    mae = Accuracy(metric="mae", value=1.25, samples=9, higher_is_better=False, per_sample=(1.25,))
    one = row(accuracy=mae, accuracy_drop=0.5, accuracy_drop_interval=(0.25, 0.75))
    report = changed(
        measurements=(one,),
        comparisons=(),
        baseline=msgspec.structs.replace(example.baseline(), accuracy=mae),
    )
    assert accuracy_heading(report) == "mae ↓"
    made = model_rows(report)[1]
    assert made.text("accuracy") == "1.250"
    assert made.with_interval("drop") == "0.500 [0.250, 0.750]"
    page = re.sub("<[^>]*>", "", render_html(report))
    for text in (text_of(report).split("drop:")[0], page):
        assert "mae ↓" in text.lower()
        assert "125" not in text
    assert metric_value(None) == drop_value(None, mae) == "–"


# The tables and the pictures of rows


def test_what_was_not_measured_has_no_table_and_no_facts():
    bare = changed(baseline=None, measurements=(row(latency=None, agreement=()),), command=())
    assert latency_table(bare) is agreement_table(bare) is None
    assert batched_line(None) == batched_line(row()) == command_line(bare) == ""
    assert condition_facts(None) == []
    assert duration_interval((999.0, 1200.0)) == "[999 µs, 1.20 ms]"


def test_outputs_are_compared_in_the_text_of_a_model_without_an_accuracy():
    compared = example.agreement("int8")
    said = f"{compared.output} against {compared.reference}: max error 0.0388"
    assert said in text_of(changed(measurements=(row(agreement=(compared,), accuracy=None),)))
    assert said not in text_of(changed(measurements=(row(agreement=(compared,)),)))


def test_columns_that_no_model_has_are_left_out_and_an_error_takes_the_rest():
    table = models_table(example.report())
    names = [column.heading for column in table.columns]
    assert names[:4] == ["Model", "Budget", "Size", "Ratio"]
    failed = table.rows[4]
    assert sum(1 for _ in failed.cells) - 1 + failed.spans == len(names)
    bare = models_table(
        changed(verdict=None, baseline=None, measurements=(example.did_not_run("int8"),))
    )
    assert [column.heading for column in bare.columns] == ["Model", "Size", "Ratio", "Measured"]
    assert bare.rows[0].cells[-1].lead == "Did not run."


def test_a_drop_beyond_chance_is_filled_and_the_others_are_hollow():
    rows: list[tuple[str, Measurement]] = [(r, example.measurement(r)) for r in ("int8", "int16x8")]
    plot = drop_plot(rows)
    assert [row["kind"] for row in plot.data["rows"]] == ["within", "beyond"]
    assert plot.data["rows"][1]["tip"] == "int16x8: 3.06 pp [1.10, 5.60]"
    for row, (_, model) in zip(plot.data["rows"], rows, strict=True):
        interval = model.accuracy_drop_interval
        assert model.accuracy_drop is not None
        assert interval is not None
        assert (row["drop"], row["low"], row["high"]) == pytest.approx(
            (model.accuracy_drop * 100, *(end * 100 for end in interval))
        )
    assert plot.axes["x"]["title"] == "worse by, percentage points →"
    assert drop_plot([("baseline", example.baseline())]) is None


@given(NUMBER, NUMBER, NUMBER)
def test_any_drop_can_be_drawn(drop, low, high):
    plot = drop_plot([("a", row(accuracy_drop=drop, accuracy_drop_interval=(low, high)))])
    assert (plot is None) == (not all(abs(end) < 1e12 for end in (drop, low, high)))
    assert plot is None or all(math.isfinite(plot.data["rows"][0][e]) for e in ("low", "high"))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_starts_that_cannot_be_drawn_leave_no_picture(bad):
    latency = msgspec.structs.replace(example.latency(5), load_us=(bad,), first_us=())
    assert start_plot([("a", latency)]) is None
    plot = start_plot([("a", msgspec.structs.replace(latency, first_us=(3.0,)))])
    (start,) = plot.data["starts"]
    assert (start["kind"], start["tip"]) == ("first invoke", "a: first invoke 3.00 µs")
    assert "a: load –, first invoke 3.00 µs" in plot.description
