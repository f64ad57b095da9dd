"""bench with invokes in a period and with cold starts: what is timed, how it is shown."""

import csv
import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tiny_tflite import float_model, int8_model, packed
from wording import fails

from edgeconv import bench
from edgeconv.measure.timing import check_pace, cold_latency_of, paced_latency_of, paced_timing
from edgeconv.reporting.facts import pace_title
from edgeconv.reporting.html import render_html
from edgeconv.reporting.markdown import render_markdown
from edgeconv.reporting.pages import text_of
from edgeconv.reporting.spreadsheet import render_csv
from edgeconv.runtimes.interface import RuntimeSettings, Timed
from edgeconv.runtimes.local import LocalRuntime, RuntimePython
from edgeconv.types import Measuring, PacedLatency, Report, Timing
from edgeconv.types.errors import UsageError

QUICK: dict[str, Any] = {"rounds": 2, "timing": Timing(warmup=1, warmup_seconds=0, repeats=5)}


@pytest.fixture
def models(tmp_path) -> Path:
    """A directory with a float and an int8 model."""
    for name, make in (("float", float_model), ("int8", int8_model)):
        content = packed(make(signature=("serving_default", ["x"], ["y"])))
        (tmp_path / f"{name}.tflite").write_bytes(content)
    return tmp_path


@pytest.fixture
def report(models) -> Report:
    """Both models in the invented runtime, every 20 ms and from 3 cold starts."""
    return bench([models], measuring=Measuring(**QUICK, runtimes=("fake",), every=0.02, cold=3))


def timed(samples_us: tuple[float, ...], starts_us: tuple[float, ...] = ()) -> Timed:
    return Timed(
        runtime="fake",
        version="1",
        load_us=100.0,
        first_us=20.0,
        samples_us=samples_us,
        starts_us=starts_us,
    )


def paced(distance_us: float) -> PacedLatency:
    starts_us = (0.0, distance_us, 2 * distance_us)
    return paced_latency_of([timed((5.0, 6.0, 7.0), starts_us)], 1e4, threads=1, batch=1)


def test_each_pace_has_percentiles_and_an_interval_in_the_report_and_its_file(report):
    again = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    for row in again.measurements:
        assert row.latency is not None
        assert (row.paced.period_us, row.paced.distance_us) == (20_000.0, pytest.approx(20_000.0))
        assert [len(samples) for samples in row.paced.rounds_us] == [5, 5]
        assert [len(samples) for samples in row.cold.rounds_us] == [1, 1, 1]
        assert row.cold.p50_us == row.cold.load_us[0] + row.cold.first_us[0]
        for latency in (row.latency, row.paced, row.cold):
            low, high = latency.p50_interval_us
            assert low <= latency.p50_us <= high
            assert latency.p50_us <= latency.p90_us <= latency.p99_us


def test_each_format_shows_them_beside_the_usual_times(report):
    text, page, markdown = text_of(report, width=200), render_html(report), render_markdown(report)
    assert all("paced p50" in shown.lower() for shown in (text, page, markdown))
    (row, *_) = csv.DictReader(io.StringIO(render_csv(report)))
    first = report.measurements[0]
    assert float(row["paced p50 (us)"]) == first.paced.p50_us
    assert float(row["cold p99 (us)"]) == first.cold.p99_us


def test_without_the_options_nothing_of_it_is_measured_or_shown(models):
    report = bench([models], measuring=Measuring(**QUICK, runtimes=("fake",)))
    assert all(row.paced is None and row.cold is None for row in report.measurements)
    shown = text_of(report, width=200) + render_markdown(report) + render_html(report)
    assert "paced" not in shown.lower()
    assert "cold" not in shown.lower()


def test_a_cold_start_is_load_and_first_invoke_of_each_process():
    runs = [timed((1.0,)), msgspec.structs.replace(timed((1.0,)), load_us=200.0)]
    cold = cold_latency_of(runs, threads=1, batch=1)
    assert cold.rounds_us == ((120.0,), (220.0,))
    assert cold.p50_us == 170.0


def test_the_distance_is_the_median_over_all_processes_and_none_is_between_two():
    runs = [timed((1.0, 1.0), (0.0, 10.0)), timed((1.0, 1.0, 1.0), (0.0, 12.0, 26.0))]
    assert paced_latency_of(runs, 10.0, threads=1, batch=1).distance_us == 12.0


def test_a_period_that_was_not_kept_says_in_what_distance_invokes_began():
    assert pace_title(paced(10_050.0)) == "every 10 ms"
    assert pace_title(paced(14_000.0)) == "every 10 ms (not kept: one in 14.0 ms)"


def test_a_slow_pace_gets_the_seconds_of_twenty_periods():
    quick, slow = (paced_timing(Measuring(every=every)) for every in (0.01, 0.5))
    assert (quick.every_seconds, quick.seconds) == (0.01, Timing().seconds)
    assert (slow.every_seconds, slow.seconds) == (0.5, 10.0)


@pytest.mark.parametrize("options", [{"every": "10"}, {"every": "0ms"}])
def test_bad_values_are_refused_from_python_too(options, models):
    with fails(UsageError):
        bench([models], measuring=Measuring(**options))


def test_a_runtime_without_a_pace_is_named_with_the_options(models):
    settings = RuntimeSettings(scratch=models)
    silent = LocalRuntime(RuntimePython(), settings, has_times=False)
    both, none = Measuring(every=0.01, cold=2), Measuring(every=0.01, is_timed=False)
    opened = {"litert": LocalRuntime(RuntimePython(), settings), "tflite-micro": silent}
    with fails(UsageError):
        check_pace(both, opened)
    check_pace(Measuring(), {"tflite-micro": silent})
    check_pace(none, {"tflite-micro": silent})


def test_the_samples_of_a_pace_are_kept_raw(report):
    row = report.measurements[0].paced
    assert row.p50_us == np.median(np.concatenate(row.rounds_us))
