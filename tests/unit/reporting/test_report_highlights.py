"""The tiles at the top of a report, and what else says which model is best."""

import re

import report_example as example
from msgspec.structs import replace

from edgeconv.measure.timing import make_latency
from edgeconv.reporting.columns import model_rows
from edgeconv.reporting.html import highlights, render_html, unbeaten_by_latency, unbeaten_by_size
from edgeconv.reporting.limits import sentence
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.pages import text_of, to_text
from edgeconv.reporting.text import verdict_page
from edgeconv.types import Finding, Latency, Measurement, Report, Verdict

QUIET = (1.0, 1.01, 0.99)
NOISY = (0.6, 1.0, 1.7)


def timed(p50_us: float, by_round: tuple[float, ...]) -> Latency:
    rounds = tuple((0.95 * p50_us * f, p50_us * f, 1.2 * p50_us * f) for f in by_round)
    return make_latency(rounds, load_us=(), first_us=(), threads=1, batch=1)


def model(
    name: str, size: int, p50_us: float, by_round: tuple[float, ...], right: int = 350
) -> Measurement:
    correct = "1" * right + "0" * (400 - right)
    accuracy = replace(
        example.accuracy(0, 0), correct=correct, value=right / 400, samples=400, predicted=()
    )
    return replace(
        example.measurement("float16"),
        name=name,
        size_bytes=size,
        latency=timed(p50_us, by_round),
        accuracy=accuracy,
    )


def tiles(*models: Measurement) -> dict[str, tuple[str, str]]:
    report = of(*models)
    return {name: (who, figure) for name, who, figure in highlights(report, model_rows(report))}


def of(*models: Measurement) -> Report:
    return replace(example.report(), measurements=models, verdict=None, baseline=None)


def test_a_speed_up_within_noise_makes_no_model_the_fastest():
    found = tiles(model("float32", 400, 14.0, QUIET), model("float16", 200, 10.0, NOISY))
    assert found["Fastest"] == ("none beyond noise", "10.0 µs to 14.0 µs, equal within noise")


def test_those_that_are_as_fast_as_the_fastest_are_named_together_the_smallest_first():
    found = tiles(
        model("slow", 100, 90.0, QUIET),
        model("large", 400, 10.0, NOISY),
        model("small", 200, 11.0, QUIET),
    )
    assert found["Fastest"] == ("small, large", "10.0 µs to 11.0 µs, equal within noise")
    alone = tiles(model("slow", 100, 90.0, QUIET), model("fast", 400, 10.0, QUIET))
    assert alone["Fastest"][0] == "fast"


def test_accuracies_within_chance_and_equal_sizes_are_named_together_too():
    found = tiles(
        model("a", 100, 10.0, QUIET, right=349),
        model("b", 100, 10.0, QUIET, right=350),
        model("bad", 300, 10.0, QUIET, right=200),
    )
    assert found["Smallest"][0] == "a, b"
    assert found["Most accurate"] == ("a, b", "87.25 % to 87.50 %, equal within chance")
    equal = tiles(model("a", 100, 10.0, QUIET), model("b", 90, 10.0, QUIET))
    assert equal["Most accurate"] == ("none beyond chance", "87.50 %, equal")
    sure = tiles(model("a", 100, 10.0, QUIET), model("bad", 90, 10.0, QUIET, right=200))
    assert sure["Most accurate"][0] == "a"


def test_the_front_counts_what_is_within_noise_as_equal():
    report = of(
        model("float32", 400, 10.0, NOISY, right=352),
        model("int8", 100, 11.0, NOISY[::-1], right=350),
        model("int16x8", 200, 90.0, QUIET, right=351),
    )
    assert [one.name for one in unbeaten_by_size(report)] == ["int8"]
    assert {one.name for one in unbeaten_by_latency(report)} == {"float32", "int8"}
    plots = re.findall('data-row="(\\d)" [^>]* fill="var\\(--accent\\)"', render_html(report))
    assert sorted(plots) == ["0", "1", "1"]


def test_a_speed_up_whose_interval_has_one_in_it_is_said_to_be_none():
    same = replace(
        example.measurement("float16"), latency_ratio=0.714, latency_ratio_interval=(0.5, 1.02)
    )
    sure = replace(same, name="sure", latency_ratio_interval=(0.5, 0.9))
    report = of(same, sure)
    assert [row.text("speed-up") for row in model_rows(report)] == ["≈1×", "1.40×"]
    text = text_of(report)
    assert "≈1×" in text
    assert "speed-up: ≈1× is as fast as float32, within noise" in text
    assert "≈1× [0.980, 2.00]" in render_markdown(report).replace("\\", "")
    assert "[0.980, 2.00]" in render_html(report)
    assert "within noise" not in text_of(of(sure))


def test_a_report_shows_one_interval_of_a_drop_and_not_the_gates_bounds_too():
    finding = Finding(
        model="digits_cnn-int8",
        limit="max-accuracy-drop",
        allowed=0.001,
        actual=2 / 360,
        outcome="inconclusive",
        severity="error",
        reference="baseline",
        interval=(-0.0115, 0.0188),
        confidence=0.95,
        method="exact mcnemar",
        samples=360,
        samples_needed=4000,
    )
    report = replace(example.report(), verdict=Verdict(findings=(finding,)))
    assert report.verdict is not None
    shown = (
        text_of(report) + text_of(report.verdict, below_table=True),
        render_html(report),
        render_markdown(report),
    )
    for text in (each.replace("\\", "") for each in shown):
        assert "[−0.80, 2.18]" in text
        assert "1.88" not in text
        assert "tested at 95 % by exact mcnemar, 360 samples" in text
        assert text.count("4,000 samples are needed, there are 360") == 1
        assert "would be enough" not in text
    # Without the table the finding has it.
    alone = to_text(verdict_page(report.verdict), width=None, color=False)
    assert "95 % interval −1.15 pp to 1.88 pp" in alone
    assert "95 % interval −1.15 pp to 1.88 pp" in sentence(finding)
    locked = replace(finding, reference="lock")
    assert "95 % interval −1.15 pp to 1.88 pp" in sentence(locked, below_table=True)
