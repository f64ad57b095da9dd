import math
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec
import pytest
import report_example as example
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Plot, draw_svg
from edgeconv.reporting.plots import (
    DOTS_A_ROW,
    BudgetRegion,
    Label,
    Point,
    Worth,
    accuracy_plot,
    drop_plot,
    fit_cells,
    latency_plot,
    layer_plot,
    metric_plots,
    place_labels,
    snr_plot,
    start_plot,
)

POINTS = (
    Point("baseline", 3e5, 0.98, True, number=0),
    Point("int8", 5e4, 0.97, False, number=4, is_best=True),
    Point("int16x8", 6e4, 0.95, False, number=5),
)
ROWS = [("int8", example.measurement("int8")), ("int16x8", example.measurement("int16x8"))]
TIMED = [("int8", example.latency(5)), ("int16x8", example.latency(9))]


def by_size(points: Sequence[Point] = POINTS, **changes: Any) -> Plot:
    plot = accuracy_plot(points, cost="size on disk", unit="bytes", **changes)
    assert plot is not None
    return plot


def every_plot() -> list[Plot]:
    """Each chart, with what it can show in it."""
    plots = [
        by_size(region=BudgetRegion(most_cost=1e5, least_value=0.96)),
        drop_plot(ROWS),
        latency_plot(TIMED),
        start_plot(TIMED),
        snr_plot([("a", -3.0), ("b", 30.0), ("c", 200.0)]),
        layer_plot(example.measurement("int8").layer_errors, "int8"),
        *(plot for _, plot in metric_plots(example.training())),
    ]
    return [plot for plot in plots if plot]


@given(st.lists(st.tuples(st.floats(6, 380), st.floats(6, 250)), max_size=10), st.data())
def test_no_label_lies_on_another_or_on_a_point_or_outside(points, data):
    texts = [data.draw(st.sampled_from(["int8", "weight-only-int8", "漢字"])) for _ in points]
    labels = [label for label in place_labels(points, texts, 386, 256) if label]
    assert not any(a.meets(b) for a, b in combinations(labels, 2))
    for label in labels:
        assert label.within(386, 256)
        assert not any(label.meets(Label("", x, y)) for x, y in points)


def test_seven_models_at_one_place_all_get_their_label():
    labels = place_labels([(190, 126)] * 7, ["weight-only-int8"] * 7, 386, 262)
    assert all(labels)
    assert labels[-1].is_far


def test_a_long_label_is_shortened_by_cells_not_characters():
    assert fit_cells("漢" * 20, 8) == "漢漢漢…"
    assert fit_cells("int8", 8) == "int8"


@given(
    st.lists(st.tuples(st.floats(1e-5, 1e14), st.floats(0, 1)), min_size=1, max_size=9),
    st.floats(0, 1),
)
def test_the_axes_hold_every_model_and_labels_are_where_the_axes_have_their_points(values, least):
    points = [Point("m", cost, worth, False) for cost, worth in values]
    plot = by_size(points, region=BudgetRegion(least_value=least))
    (low, high), (bottom, top) = (plot.axes[axis]["scale"]["domain"] for axis in ("x", "y"))
    assert all(low < cost < high and bottom <= worth <= top for cost, worth in values)
    assert high >= 1.999 * low
    for label in plot.data["labels"]:
        x, y = label["from_x"] / plot.spec["width"], 1 - label["from_y"] / plot.spec["height"]
        assert any(
            math.isclose(x, math.log(cost / low) / math.log(high / low), abs_tol=1e-6)
            and math.isclose(y, (worth - bottom) / (top - bottom), abs_tol=1e-6)
            for cost, worth in values
        )


def test_a_plot_tells_baseline_best_and_beaten_apart_by_shape_and_says_so_in_words():
    plot = by_size([*POINTS, Point("unmeasured", 6e4, math.nan, False)])
    assert [(m["kind"], m["cost"], m["worth"]) for m in plot.data["models"]] == [
        ("baseline", 3e5, 0.98),
        ("other", 6e4, 0.95),
        ("best", 5e4, 0.97),
    ]
    assert plot.data["baselines"] == [{"worth": 0.98}]
    assert plot.rows == (0, 5, 4)
    assert "int8: 50.0 kB, 97.00 %" in plot.description
    assert "unmeasured" not in plot.description


@pytest.mark.parametrize("plot", every_plot(), ids=lambda plot: plot.title)
def test_a_chart_is_drawn_as_it_stands_and_its_axes_say_what_they_show(plot, capfd):
    vl_convert.vegalite_to_svg(msgspec.json.encode(plot.spec).decode(), show_warnings=True)
    assert capfd.readouterr() == ("", "")
    svg = str(draw_svg(plot, "k"))
    assert not re.search(r"NaN|Infinity|undefined|null|e[+]", svg)
    titles = re.findall(r'role-axis-title"[^>]*><text[^>]*>([^<]*)<', svg)
    encodings = plot.spec["encoding"].values()
    shown = [e for e in encodings if "axis" not in e or e["axis"] is not None]
    assert titles == [e["title"] for e in shown if "title" in e and e["title"] not in (None, "")]
    assert titles
    assert "aria-label=" not in svg
    # What shows the data is in a color of the page, and says what it is.
    marks = re.findall(r'<path [^>]*?(?:fill|stroke)="var\(--[^>]*><title>[^<]+</title>', svg)
    named = max((len(data) for data in plot.data.values() if data and "tip" in data[0]), default=0)
    assert len(marks) >= named > 0
    lines = re.findall(r'<g class="mark-line[^>]*><path ([^>]*)>', svg)
    assert all(' stroke="var(--' in line for line in lines)


def test_a_mark_says_in_its_tooltip_what_the_table_says_and_which_row_that_is():
    svg = str(draw_svg(by_size(), "k"))
    marks = re.findall(r'<path data-row="(\d)" [^>]*><title>([^<]*)</title></path>', svg)
    assert marks == [
        ("0", "baseline: 300 kB, 98.00 %"),
        ("5", "int16x8: 60.0 kB, 95.00 %"),
        ("4", "int8: 50.0 kB, 97.00 %"),
    ]
    assert "100 kB</text>" in svg
    assert ">97 %</text>" in svg


@pytest.mark.parametrize("text", [' d="1.23456"', 'x> x2="1.23456">', "1.23456"])
def test_a_drawing_has_no_digit_that_depends_on_the_engine_and_names_keep_theirs(text):
    svg = str(draw_svg(by_size([Point(text, 5e4, 0.97123456, False), *POINTS]), "k"))
    assert svg.count("1.23456") == 3
    inside_tags = " ".join(re.findall("<[a-z][^<>]*>", svg.replace("1.23456", "")))
    assert not re.search(r"\d\.\d{3}|e-\d", inside_tags)


@pytest.mark.parametrize("text", ["</svg><script>", "\"'&", "{{7*7}}", "signal('x')", "datum.x"])
def test_text_of_a_model_is_nothing_but_text_in_a_drawing(text):
    points = [Point(text, 5e4, 0.97, False), Point("b", 6e4, 0.9, True)]
    svg = str(draw_svg(by_size(points, worth=Worth(name=text)), "k"))
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert svg.replace("&#34;", '"').replace("&quot;", '"').replace("&#39;", "'").count(escaped) > 3
    assert svg.count("<svg") == svg.count("</svg") == 1
    assert "<script" not in svg


def test_too_little_address_space_is_an_error_and_no_crash():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))\n"
        "from edgeconv.types.errors import ToolFailed\n"
        "from edgeconv.reporting.drawing import draw_svg\n"
        "from edgeconv.reporting.plots import snr_plot\n"
        "try: draw_svg(snr_plot([('a', 3.0)]), 'k')\n"
        "except ToolFailed as error: print(error.exit_code, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("4 the plots of the HTML report need 72 GiB of address space")
    assert "16 GiB\n  next: lift the limit (ulimit -v unlimited)" in done.stdout


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, 1e300, 5e-324])
def test_values_that_cannot_be_drawn_leave_no_picture(bad):
    assert accuracy_plot([Point("a", bad, 0.9, False)], cost="s", unit="bytes") is None
    latency = msgspec.structs.replace(example.latency(5), rounds_us=((bad,), ()))
    assert latency_plot([("a", latency)]) is None


def test_one_sample_is_enough_for_a_latency_picture():
    latency = msgspec.structs.replace(example.latency(5), rounds_us=((5.0,),))
    plot = latency_plot([("a", latency)])
    (row,) = plot.data["rows"]
    assert (row["tip"], row["p5"], row["p50"], row["p95"]) == ("a: median 5.00 µs", 5, 5, 5)


def test_many_samples_are_thinned_but_every_process_is_shown():
    plot = latency_plot([("a", example.latency(60, rounds=3, count=2000))])
    dots = [dot for dot in plot.data["samples"] if dot["time"]]
    assert {dot["process"] for dot in dots} == {0, 0.5, 1}
    assert len(dots) <= DOTS_A_ROW + 3
    # Each is a point of its own in the one path of its row.
    svg = str(draw_svg(plot, "k"))
    assert max(path.count("Z") for path in re.findall(r' d="([^"]*)"', svg)) == len(dots)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -12.0, 1e9, 30.0])
def test_any_signal_to_noise_ratio_can_be_drawn(value):
    plot = snr_plot([("a", value), ("b", 20.0)])
    assert plot is not None
    svg = str(draw_svg(plot, "k"))
    assert units.decibels(value) in svg
    shapes = re.findall(r' (?:d|transform)="([^"]*)"', svg)
    assert not re.search("nan|inf|undefined", " ".join(shapes), re.IGNORECASE)
