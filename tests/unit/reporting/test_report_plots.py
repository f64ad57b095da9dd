from __future__ import annotations

import math
from itertools import combinations

import msgspec
import pytest
import report_example as example
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.reporting import units
from edgeconv.reporting.axes import linear_axis, log_axis
from edgeconv.reporting.labels import Box, place, shortened
from edgeconv.reporting.plots import Point, accuracy_plot
from edgeconv.reporting.strips import DOTS_A_ROW, latency_picture, snr_picture

AREA = Box(60, 14, 448, 276)


@given(st.lists(st.tuples(st.floats(66, 442), st.floats(20, 270)), max_size=10), st.data())
def test_no_label_lies_on_another_or_on_a_point_or_outside(
    points: list[tuple[float, float]], data: st.DataObject
) -> None:
    texts = [data.draw(st.sampled_from(["int8", "weight-only-int8", "漢字"])) for _ in points]
    boxes = [label.box for label in place(points, texts, AREA) if label]
    assert not any(a.meets(b) for a, b in combinations(boxes, 2))
    for box in boxes:
        assert box.within(AREA)
        assert not any(box.meets(Box(x - 5, y - 5, x + 5, y + 5)) for x, y in points)


def test_seven_models_at_one_place_all_get_their_label() -> None:
    labels = place([(250, 140)] * 7, ["weight-only-int8"] * 7, AREA)
    assert all(labels)
    assert labels[-1] is not None
    assert labels[-1].far


def test_a_long_label_is_shortened_by_cells_not_characters() -> None:
    assert shortened("漢" * 20, 8) == "漢漢漢…"
    assert shortened("int8", 8) == "int8"


@given(st.lists(st.floats(1e-5, 1e14), min_size=1))
def test_a_log_axis_holds_its_values_in_order_and_has_two_ticks(values: list[float]) -> None:
    axis = log_axis(values, 0, 100)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert 0 < places[0] <= places[-1] < 100
    assert 2 <= len(axis.ticks) <= 14


@given(st.lists(st.floats(0, 1), min_size=1))
def test_a_linear_axis_goes_upwards_and_has_two_ticks(values: list[float]) -> None:
    axis = linear_axis(values, 100, 0, least=0, most=1)
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places, reverse=True)
    assert 2 <= len(axis.ticks) <= 7
    assert all(axis.low - 1e-9 <= tick <= axis.high + 1e-9 for tick in axis.ticks)


def test_a_plot_tells_baseline_best_and_beaten_apart_by_shape_and_says_so_in_words() -> None:
    points = [
        Point("baseline", 3e5, 0.98, True),
        Point("int8", 5e4, 0.97, False, is_best=True),
        Point("int16x8", 6e4, 0.95, False),
        Point("unmeasured", 6e4, math.nan, False),
    ]
    svg = accuracy_plot(points, key="k", heading="size", form=units.size)
    assert svg is not None
    assert svg.count('<path class="baseline"') == svg.count('<circle class="best"') == 1
    assert svg.count('<circle class="other"') == 1
    assert "int8: 50.0 kB, 97.00 %" in svg
    assert "unmeasured" not in svg


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0, 1e300, 5e-324])
def test_values_that_cannot_be_drawn_leave_no_picture(bad: float) -> None:
    assert (
        accuracy_plot([Point("a", bad, 0.9, False)], key="k", heading="s", form=units.size) is None
    )
    latency = msgspec.structs.replace(example.latency(5), rounds_us=((bad,), ()))
    assert latency_picture([("a", latency)], "k") is None


def test_one_sample_is_enough_for_a_latency_picture() -> None:
    latency = msgspec.structs.replace(example.latency(5), rounds_us=((5.0,),))
    assert "a: median 5.00 µs" in (latency_picture([("a", latency)], "k") or "")


def test_many_samples_are_thinned_but_every_process_is_shown() -> None:
    svg = latency_picture([("a", example.latency(60, rounds=3, count=2000))], "k") or ""
    heights = {step.split("h0")[0].split(" ")[1] for step in svg.split('dots" d="M')[1].split("M")}
    assert len(heights) == 3
    assert svg.count("h0") <= DOTS_A_ROW + 3


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -12.0, 1e9, 30.0])
def test_any_signal_to_noise_ratio_can_be_drawn(value: float | None) -> None:
    svg = snr_picture([("a", value), ("b", 20.0)], "k") or ""
    assert units.decibels(value) in svg
    assert "nan" not in svg
    assert "inf" not in svg
